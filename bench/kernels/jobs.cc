// SPDX-License-Identifier: Apache-2.0
// Prepares the cases of benchmarks, runs them, and compares results with the reference in pieces.
#include "bench/kernels/jobs.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "bench/harness.h"
#include "kernels/backends.h"

namespace phasor::bench {
namespace {

// The most rows or tokens that one comparison with the reference covers.
constexpr int64_t kCheckedAtOnce = 1024;
constexpr int64_t kSampled = 16;

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status().ToString());
  return *std::move(value);
}

void RunOrDie(Backend& backend, Job job) {
  const absl::Status status = backend.Run({&job, 1});
  if (!status.ok()) Die(status.ToString());
}

Backend& Reference() {
  static const auto* const backend =
      new std::unique_ptr<Backend>(ValueOrDie(MakeBackend({.name = "reference"})));
  return **backend;
}

// Calls check(first, count) for pieces that cover [0, total), or only for the two ends of it.
template <typename Check>
void ForPieces(int64_t total, bool sample, Check check) {
  const int64_t piece = sample ? kSampled : kCheckedAtOnce;
  for (int64_t first = 0; first < total; first += piece) {
    const int64_t count = std::min(piece, total - first);
    if (!sample || first == 0 || first + count == total) check(first, count);
  }
}

void Compare(const std::byte* got, const std::vector<std::byte>& want, int64_t first) {
  if (std::memcmp(got, want.data(), want.size()) != 0) {
    Die(absl::StrCat("rows from ", first, " differ from the reference"));
  }
}

}  // namespace

EncodeRequest RequestOf(const EncodeCase& c) {
  EncodeRequest request;
  request.spec.preset = c.preset;
  request.spec.dim = c.dim;
  request.positions = AxisRange(IntegerRange{.start = c.first, .count = c.rows});
  request.output_dtype = c.dtype;
  return request;
}

RopeRequest RequestOf(const RopeCase& c) {
  RopeRequest request;
  request.spec.preset = c.preset;
  request.spec.head_dim = c.head_dim;
  if (c.rotary_dim > 0) request.spec.rotary_dim = c.rotary_dim;
  PositionTensor positions{Dtype::kInt64, {c.tokens()}};
  if (c.axes > 1) positions.shape.push_back(c.axes);
  request.positions = positions;
  for (const int64_t heads : {c.q_heads, c.k_heads}) {
    if (heads > 0) request.tensors.push_back({c.dtype, {c.tokens(), heads, c.head_dim}, {}});
  }
  return request;
}

EncodeRun::EncodeRun(const EncodeCase& test_case)
    : prepared_(ValueOrDie(PrepareEncode(RequestOf(test_case), CompilePlan, "item"))) {}

void EncodeRun::Run(Backend& backend, std::byte* out) const {
  RunOrDie(backend, MakeEncodeJob(prepared_, nullptr, out));
}

EncodeArithmetic::EncodeArithmetic(EncodeCase c, Backend& one, int threads)
    : one_(&one), pool_(threads) {
  constexpr int64_t kBytes = 128 << 10;
  const int64_t row_bytes = c.bytes() / c.rows;
  const int64_t rows = std::clamp(kBytes / row_bytes, int64_t{1}, c.rows);
  pieces_ = c.rows / rows;
  c.rows = rows;
  run_.emplace(c);
  for (int t = 0; t < threads; ++t) memory_.emplace_back(c.bytes());
}

void EncodeArithmetic::Run() {
  const auto threads = static_cast<int64_t>(memory_.size());
  pool_.ParallelFor(threads, [&](int64_t t) {
    for (int64_t i = pieces_ * t / threads; i < pieces_ * (t + 1) / threads; ++i) {
      run_->Run(*one_, memory_[static_cast<size_t>(t)].data());
    }
  });
}

RopeRun::RopeRun(const RopeCase& test_case)
    : q_bytes_(test_case.q_bytes()),
      prepared_(ValueOrDie(PrepareRope(RequestOf(test_case), CompilePlan, "item"))) {
  prepared_.positions.data = reinterpret_cast<const std::byte*>(test_case.positions.data());
  prepared_.positions.data_bytes = test_case.tokens() * test_case.axes * SizeOf(Dtype::kInt64);
}

void RopeRun::Run(Backend& backend, const std::byte* x, std::byte* y) const {
  const std::byte* const inputs[] = {x, x + q_bytes_};
  std::byte* const outputs[] = {y, y + q_bytes_};
  const size_t count = prepared_.tensors.size();
  RunOrDie(backend,
           MakeRotaryJob(prepared_, absl::MakeSpan(inputs, count), absl::MakeSpan(outputs, count)));
}

void CheckEncode(const EncodeCase& test_case, const std::byte* out, bool sample) {
  const int64_t row_bytes = test_case.bytes() / test_case.rows;
  ForPieces(test_case.rows, sample, [&](int64_t first, int64_t count) {
    EncodeCase piece = test_case;
    piece.rows = count;
    piece.first = test_case.first + first;
    std::vector<std::byte> want(static_cast<size_t>(piece.bytes()));
    EncodeRun(piece).Run(Reference(), want.data());
    Compare(out + first * row_bytes, want, first);
  });
}

void CheckRope(const RopeCase& test_case, const std::byte* x, const std::byte* y, bool sample) {
  ForPieces(test_case.tokens(), sample, [&](int64_t first, int64_t count) {
    RopeCase piece = test_case;
    const auto begin = test_case.positions.begin() + first * test_case.axes;
    piece.positions.assign(begin, begin + count * test_case.axes);
    const int64_t q_at = first * test_case.q_bytes() / test_case.tokens();
    const int64_t k_at = test_case.q_bytes() + q_at / test_case.q_heads * test_case.k_heads;
    const auto q_size = static_cast<size_t>(piece.q_bytes());
    // The piece's q and k side by side.
    const auto gather = [&](const std::byte* from) {
      std::vector<std::byte> both(static_cast<size_t>(piece.bytes()));
      std::memcpy(both.data(), from + q_at, q_size);
      std::memcpy(both.data() + q_size, from + k_at, both.size() - q_size);
      return both;
    };
    std::vector<std::byte> want = gather(x);
    RopeRun(piece).Run(Reference(), want.data(), want.data());
    Compare(gather(y).data(), want, first);
  });
}

}  // namespace phasor::bench
