// SPDX-License-Identifier: Apache-2.0
// All ways in which this machine can run a job: each instruction set, one thread and several, with
// and without bypassing caches, and the GPU's kernels on a fake GPU in host memory. The first one
// is the scalar reference, which the others must equal.
#ifndef PHASOR_TESTS_SUPPORT_BACKENDS_H_
#define PHASOR_TESTS_SUPPORT_BACKENDS_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend/backend.h"
#include "kernels/base/text.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/fake_driver.h"

namespace phasor::testing {

struct NamedBackend {
  std::string name;
  std::unique_ptr<Backend> backend;
};

// The widest instruction set, one thread.
inline Backend& FastestBackend() {
  static Backend* const backend =
      cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1}).release();
  return *backend;
}

inline std::vector<NamedBackend> AllBackends() {
  std::vector<NamedBackend> all;
  const auto add = [&](const cpu::CpuBackendOptions& options, std::string_view how = "") {
    all.push_back({StrCat(cpu::Name(options.target), "_", options.threads, "t", how),
                   cpu::MakeCpuBackend(options)});
  };
  add({cpu::Target::kScalar, 1});
  for (cpu::Target target : cpu::RunnableTargets()) {
    if (target == cpu::Target::kScalar) continue;
    add({target, 3});
#ifndef __SANITIZE_THREAD__  // which has nothing to find where there is one thread
    add({target, 1});
    // Every output counts as larger than the caches.
    add({.target = target, .stream_bytes = 1, .pages_in_turns = 0}, "_stream_unfetched");
    add({.target = target, .stream_bytes = 1, .pages_in_turns = 1}, "_stream");
    add({.target = target, .stream_bytes = 1, .pages_in_turns = 4}, "_stream_pages");
    if (target == cpu::Target::kAvx3 && cpu::RoundsToBFloat16()) {
      add({.target = target, .rounds_to_bfloat16 = false}, "_without_bf16");
    }
#endif
  }
  const cuda::CudaBackendOptions small_chunks{
      .chunk_bytes = int64_t{64} << 10, .slots = 2, .least_bytes = 0};
  all.push_back(
      {"CUDA_on_host", std::make_unique<cuda::CudaBackend>(
                           std::make_unique<FakeDriver>(std::make_shared<FakeDevice>()),
                           cpu::MakeCpuBackend({cpu::Target::kScalar, 1}), small_chunks)});
  return all;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_BACKENDS_H_
