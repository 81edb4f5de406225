// SPDX-License-Identifier: Apache-2.0
// A C interface to the GPU kernels for peers.py, so that Phasor and its peers run in turn in one
// process on the same device memory. Objects live until the process ends. An invalid case ends the
// process.
#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/cuda/device.h"
#include "bench/cuda/staged_jobs.h"
#include "bench/harness.h"
#include "bench/kernels/jobs.h"
#include "kernels/cuda/launch.h"

using phasor::Dtype;
using phasor::bench::Device;
using phasor::bench::EncodeCase;
using phasor::bench::JobRecorder;
using phasor::bench::RopeCase;
using phasor::bench::StagedJobs;

namespace {

Device& TheDevice() {
  static auto* const device = [] {
    auto opened = phasor::bench::OpenCudaDevice();
    if (!opened.ok()) phasor::bench::Die(opened.status().ToString());
    return opened->release();
  }();
  return *device;
}

}  // namespace

// dtype: 1 FLOAT32, 2 FLOAT16, 3 BFLOAT16.
extern "C" {

// The card's name. Lives as long as the process.
const char* phasor_cuda_device() { return (new std::string(TheDevice().name()))->c_str(); }

void* phasor_cuda_rope_case(const char* preset, int dtype, const int64_t* positions, int64_t tokens,
                            int64_t q_heads, int64_t k_heads, int64_t head_dim) {
  return new RopeCase{preset,   static_cast<Dtype>(dtype),      q_heads, k_heads,
                      head_dim, {positions, positions + tokens}};
}

// The launches of a case in device memory, q then k, in place.
void* phasor_cuda_rope(void* rope_case, void* qk) {
  JobRecorder recorder;
  auto* const memory = static_cast<std::byte*>(qk);
  const phasor::bench::RopeRun run(*static_cast<RopeCase*>(rope_case));
  run.Run(recorder, memory, memory);
  return new StagedJobs(TheDevice(), recorder.jobs());
}

// The launches of an encoding of positions 0, 1, ... into device memory.
void* phasor_cuda_encode(const char* preset, int64_t rows, int64_t dim, int dtype, void* out) {
  JobRecorder recorder;
  const phasor::bench::EncodeRun run(EncodeCase{preset, rows, dim, static_cast<Dtype>(dtype)});
  run.Run(recorder, static_cast<std::byte*>(out));
  return new StagedJobs(TheDevice(), recorder.jobs());
}

// Queues launches on a stream. Returns a cudaError_t.
int phasor_cuda_launch(void* staged, void* stream) {
  for (const auto& launch : static_cast<StagedJobs*>(staged)->launches()) {
    if (int error = phasor::cuda::LaunchKernel(launch.kernel, launch.batch, stream)) return error;
  }
  return 0;
}

// Ends the process unless y, on the host, is what the reference computes from x: all of it, or only
// its ends if `all` is 0.
void phasor_cuda_check_rope(void* rope_case, const void* x, const void* y, int all) {
  phasor::bench::CheckRope(*static_cast<RopeCase*>(rope_case), static_cast<const std::byte*>(x),
                           static_cast<const std::byte*>(y), all == 0);
}
void phasor_cuda_check_encode(const char* preset, int64_t rows, int64_t dim, int dtype,
                              const void* out) {
  phasor::bench::CheckEncode(EncodeCase{preset, rows, dim, static_cast<Dtype>(dtype)},
                             static_cast<const std::byte*>(out), true);
}

}  // extern "C"
