// SPDX-License-Identifier: Apache-2.0
// Runs two small jobs and compares SHA-256 checksums of their outputs with the reference's.
#include "kernels/self_test.h"

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/base/sha256.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/request.h"

namespace phasor {
namespace {

constexpr char kRowsSha256[] = "dc8c00da925d6474ff3673b112a298f0e6b0f1f7a95d8e4c42bb7edd01591c0d";
constexpr char kHeadsSha256[] = "0071e327182d864aced360b55e536a3e075c19118c7d1e0d3fa256a3515ad99d";

// The step is large, so that a wrong step of range reduction shows. The count is large, so that the
// CUDA backend does not leave the jobs to the CPU.
constexpr IntegerRange kPositions{-5, 1000003, 3072};
constexpr int64_t kHeads = 1;
constexpr int64_t kHeadDim = 64;

absl::Status Compare(const Backend& backend, const char* what, const std::vector<std::byte>& bytes,
                     const char* expected) {
  const std::string got = Sha256Hex(bytes);
  if (got == expected) return absl::OkStatus();
  return absl::InternalError(StrCat("self-test: backend ", backend.name(), " (", backend.target(),
                                    ") computes other bits of ", what, " than numerics version ",
                                    kNumericsVersion, ": SHA-256 ", got, "; must be ", expected));
}

absl::Status TestRows(Backend& backend) {
  const EncodeRequest request{.spec = {.preset = "transformer", .dim = 96},
                              .positions = kPositions};
  PHASOR_ASSIGN_OR_RETURN(const PreparedEncode prepared,
                          PrepareEncode(request, CompilePlan, "self-test"));
  std::vector<std::byte> rows(static_cast<size_t>(prepared.output_bytes));
  const Job jobs[] = {MakeEncodeJob(prepared, nullptr, rows.data())};
  PHASOR_RETURN_IF_ERROR(backend.Run(jobs));
  return Compare(backend, "rows", rows, kRowsSha256);
}

absl::Status TestHeads(Backend& backend) {
  const RopeRequest request{
      .spec = {.preset = "rope-half-split"},
      .positions = kPositions,
      .tensors = {{Dtype::kFloat32, {kPositions.count, kHeads, kHeadDim}, {}}}};
  PHASOR_ASSIGN_OR_RETURN(const PreparedRope prepared,
                          PrepareRope(request, CompilePlan, "self-test"));
  std::vector<float> x(static_cast<size_t>(kPositions.count * kHeads * kHeadDim));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 1001) / 64 - 7;
  std::vector<std::byte> heads(x.size() * sizeof(float));
  const auto* const in = reinterpret_cast<const std::byte*>(x.data());
  std::byte* const out = heads.data();
  const Job jobs[] = {MakeRotaryJob(prepared, {in}, {out})};
  PHASOR_RETURN_IF_ERROR(backend.Run(jobs));
  return Compare(backend, "heads", heads, kHeadsSha256);
}

}  // namespace

absl::Status SelfTest(Backend& backend) {
  PHASOR_RETURN_IF_ERROR(TestRows(backend));
  return TestHeads(backend);
}

}  // namespace phasor
