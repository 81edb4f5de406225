// SPDX-License-Identifier: Apache-2.0
// A C interface to the kernels for peers.py, so that Phasor and its peers run in turn in one
// process on the same memory. Objects live until the process ends. An invalid case ends the
// process.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "bench/harness.h"
#include "bench/kernels/jobs.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"

using phasor::Backend;
using phasor::Dtype;
using phasor::bench::EncodeArithmetic;
using phasor::bench::EncodeCase;
using phasor::bench::EncodeRun;
using phasor::bench::RopeCase;
using phasor::bench::RopeRun;

namespace {

// Keeps the positions that the run borrows.
struct Rope {
  explicit Rope(RopeCase c) : test_case(std::move(c)), run(test_case) {}
  const RopeCase test_case;
  const RopeRun run;
};

}  // namespace

// dtype: 1 FLOAT32, 2 FLOAT16, 3 BFLOAT16.
extern "C" {

void* phasor_bench_backend(int threads) {
  auto backend = phasor::MakeBackend({.name = "cpu", .threads = threads});
  if (!backend.ok()) phasor::bench::Die(backend.status().ToString());
  return backend->release();
}

// The backend's target(). Lives as long as the process.
const char* phasor_bench_target(void* backend) {
  return (new std::string(static_cast<Backend*>(backend)->target()))->c_str();
}

void* phasor_bench_encode(const char* preset, int64_t rows, int64_t dim, int dtype) {
  return new EncodeRun(EncodeCase{preset, rows, dim, static_cast<Dtype>(dtype)});
}

void phasor_bench_run_encode(void* backend, void* encode, void* out) {
  static_cast<EncodeRun*>(encode)->Run(*static_cast<Backend*>(backend),
                                       static_cast<std::byte*>(out));
}

// The arithmetic of an encoding on as many threads. `one` is a backend of one thread.
void* phasor_bench_arithmetic(const char* preset, int64_t rows, int64_t dim, int dtype, void* one,
                              int threads) {
  return new EncodeArithmetic(EncodeCase{preset, rows, dim, static_cast<Dtype>(dtype)},
                              *static_cast<Backend*>(one), threads);
}

void phasor_bench_run_arithmetic(void* arithmetic) {
  static_cast<EncodeArithmetic*>(arithmetic)->Run();
}

// Copies the positions.
void* phasor_bench_rope(const char* preset, int dtype, const int64_t* positions, int64_t tokens,
                        int64_t q_heads, int64_t k_heads, int64_t head_dim) {
  return new Rope({preset,
                   static_cast<Dtype>(dtype),
                   q_heads,
                   k_heads,
                   head_dim,
                   {positions, positions + tokens}});
}

// x and y are q then k. y may be x.
void phasor_bench_run_rope(void* backend, void* rope, const void* x, void* y) {
  static_cast<Rope*>(rope)->run.Run(*static_cast<Backend*>(backend),
                                    static_cast<const std::byte*>(x), static_cast<std::byte*>(y));
}

}  // extern "C"
