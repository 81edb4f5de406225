// SPDX-License-Identifier: Apache-2.0
// The list of backends; the only file that names them all.
#include <algorithm>
#include <thread>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/text.h"

namespace phasor {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  cpu::CpuBackendOptions cpu;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu.threads = options.threads > 0 ? options.threads : cores;
  if (options.name == "auto" || options.name == "cpu") {
    cpu.target = cpu::RunnableTargets().front();
    return cpu::MakeCpuBackend(cpu);
  }
  if (options.name == "reference") {
    cpu.target = cpu::Target::kScalar;
    cpu.name = "reference";
    return cpu::MakeCpuBackend(cpu);
  }
  if (options.name == "cuda") {
    return absl::FailedPreconditionError(
        "backend: this build has no CUDA backend, accepted are auto, cpu and reference");
  }
  return absl::NotFoundError(
      StrCat("backend: \"", options.name, "\" is not known, accepted are auto, cpu and reference"));
}

}  // namespace phasor
