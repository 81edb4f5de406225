// SPDX-License-Identifier: Apache-2.0
// The jobs that benchmarks run, prepared by the same functions as every caller's.
#ifndef PHASOR_BENCH_KERNELS_JOBS_H_
#define PHASOR_BENCH_KERNELS_JOBS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "kernels/backend/backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/request/request.h"

namespace phasor::bench {

// Encode of positions first, first + 1, ...
struct EncodeCase {
  std::string preset = "transformer";
  int64_t rows = 0;
  int64_t dim = 0;
  Dtype dtype = Dtype::kFloat32;
  int64_t first = 0;

  int64_t bytes() const { return rows * dim * SizeOf(dtype); }
};

// ApplyRoPE on q [tokens, q_heads, head_dim] and on k, which follows q in memory. No k if it has no
// heads.
struct RopeCase {
  std::string preset = "rope-half-split";
  Dtype dtype = Dtype::kFloat32;
  int64_t q_heads = 32;
  int64_t k_heads = 8;
  int64_t head_dim = 128;
  std::vector<int64_t> positions;  // `axes` per token
  int64_t axes = 1;
  int64_t rotary_dim = 0;  // 0: the preset's, usually the whole head

  int64_t tokens() const { return static_cast<int64_t>(positions.size()) / axes; }
  int64_t q_bytes() const { return tokens() * q_heads * head_dim * SizeOf(dtype); }
  int64_t bytes() const { return q_bytes() / q_heads * (q_heads + k_heads); }
};

EncodeRequest RequestOf(const EncodeCase& test_case);
RopeRequest RequestOf(const RopeCase& test_case);

// A prepared case that runs on any backend and memory. Dies if the case is not valid.
// Threads: any number of threads may call Run at once.
class EncodeRun {
 public:
  explicit EncodeRun(const EncodeCase& test_case);
  void Run(Backend& backend, std::byte* out) const;

 private:
  PreparedEncode prepared_;
};

// Encode of as many rows, 128 KiB at a time to one place for each thread: computes as much as the
// case and waits for no memory. `one` has one thread and outlives this.
class EncodeArithmetic {
 public:
  EncodeArithmetic(EncodeCase test_case, Backend& one, int threads);
  void Run();

 private:
  Backend* one_;
  cpu::ThreadPool pool_;
  std::optional<EncodeRun> run_;
  int64_t pieces_;
  std::vector<Memory> memory_;
};

// Borrows `test_case.positions`.
class RopeRun {
 public:
  explicit RopeRun(const RopeCase& test_case);
  // x is q then k. y may be x.
  void Run(Backend& backend, const std::byte* x, std::byte* y) const;

 private:
  int64_t q_bytes_;
  PreparedRope prepared_;
};

// Die unless `out` or `y` is what the reference backend computes. `sample` compares only the first
// and the last rows or tokens.
void CheckEncode(const EncodeCase& test_case, const std::byte* out, bool sample);
void CheckRope(const RopeCase& test_case, const std::byte* x, const std::byte* y, bool sample);

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_KERNELS_JOBS_H_
