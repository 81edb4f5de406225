// SPDX-License-Identifier: Apache-2.0
// The list of backends; the only file that names them all.
#include <algorithm>
#include <thread>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/text.h"
#ifdef PHASOR_HAS_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_driver.h"
#endif

namespace phasor {
namespace {

std::unique_ptr<Backend> MakeCpu(const BackendOptions& options, cpu::Target target,
                                 std::string_view name) {
  cpu::CpuBackendOptions cpu;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu.threads = options.threads > 0 ? options.threads : cores;
  cpu.target = target;
  cpu.name = name;
  return cpu::MakeCpuBackend(cpu);
}

std::unique_ptr<Backend> MakeCpu(const BackendOptions& options) {
  return MakeCpu(options, cpu::RunnableTargets().front(), "cpu");
}

// FAILED_PRECONDITION: this build or this host has no device.
absl::StatusOr<std::unique_ptr<Backend>> MakeCuda([[maybe_unused]] const BackendOptions& options) {
#ifdef PHASOR_HAS_CUDA
  auto driver = cuda::OpenDevice();
  if (!driver.ok()) return driver.status();
  return std::make_unique<cuda::CudaBackend>(*std::move(driver), MakeCpu(options),
                                             cuda::CudaBackendOptions{});
#else
  return absl::FailedPreconditionError(
      "backend: this build has no CUDA backend, accepted are auto, cpu and reference");
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.name == "cpu") return MakeCpu(options);
  if (options.name == "reference") return MakeCpu(options, cpu::Target::kScalar, "reference");
  if (options.name == "cuda") return MakeCuda(options);
  // Until a device has been measured against the cores beside it.
  if (options.name == "auto") return MakeCpu(options);
  return absl::NotFoundError(StrCat("backend: \"", options.name,
                                    "\" is not known, accepted are auto, cpu, cuda and reference"));
}

}  // namespace phasor
