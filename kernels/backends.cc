// SPDX-License-Identifier: Apache-2.0
// Lists the backends and configures each one.
#include "kernels/backends.h"

#include <algorithm>
#include <utility>

#include "kernels/base/cores.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/cpu/cpu_backend.h"
#ifdef PHASOR_HAS_CUDA
#include "kernels/base/nearest_name.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/devices_backend.h"
#endif

namespace phasor {
namespace {

std::unique_ptr<Backend> MakeCpu(const BackendOptions& options, cpu::Target target,
                                 std::string_view name) {
  cpu::CpuBackendOptions cpu;
  cpu.threads = options.threads > 0 ? options.threads : UsableCores();
  cpu.target = target;
  cpu.name = name;
  return cpu::MakeCpuBackend(cpu);
}

std::unique_ptr<Backend> MakeCpu(const BackendOptions& options) {
  return MakeCpu(options, cpu::RunnableTargets().front(), "cpu");
}

#ifdef PHASOR_HAS_CUDA
// The backend of one device. `cpu` runs what the device does not.
absl::StatusOr<std::unique_ptr<Backend>> MakeCuda(int number, const BackendOptions& options,
                                                  bool host_tensors, std::shared_ptr<Backend> cpu) {
  PHASOR_ASSIGN_OR_RETURN(auto driver, cuda::OpenDevice(number));
  cuda::CudaBackendOptions cuda;
  cuda.life.retry = options.retry_device;
  cuda.host_tensors = host_tensors;
  return std::make_unique<cuda::CudaBackend>(std::move(driver), std::move(cpu), cuda);
}
#endif

// `host_tensors`: whether tensors in host memory go to a device too. FAILED_PRECONDITION: this
// build or host has no device.
absl::StatusOr<std::unique_ptr<Backend>> MakeCuda([[maybe_unused]] const BackendOptions& options,
                                                  [[maybe_unused]] bool host_tensors) {
#ifdef PHASOR_HAS_CUDA
  PHASOR_ASSIGN_OR_RETURN(const std::vector<std::string> names, cuda::ListDevices());
  const std::shared_ptr<Backend> cpu = MakeCpu(options);
  const auto open = [&](int number) { return MakeCuda(number, options, host_tensors, cpu); };
  return OpenDevices(options.devices, names, open, options.left_out);
#else
  return absl::FailedPreconditionError(
      "backend: this build has no CUDA backend; accepted are auto, cpu and reference");
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.name == "cpu") return MakeCpu(options);
  if (options.name == "reference") return MakeCpu(options, cpu::Target::kScalar, "reference");
  if (options.name == "cuda") return MakeCuda(options, /*host_tensors=*/true);
  if (options.name == "auto") {
    auto cuda = MakeCuda(options, /*host_tensors=*/false);
    if (cuda.ok() || absl::IsInvalidArgument(cuda.status())) return cuda;
    if (options.devices.empty()) return MakeCpu(options);
    return absl::Status(
        cuda.status().code(),
        StrCat("devices: set, so they are needed; leave the option out where there are none: ",
               cuda.status().message()));
  }
  return absl::NotFoundError(StrCat("backend: \"", options.name, "\" is not known",
                                    DidYouMean(options.name, {"auto", "cpu", "cuda", "reference"}),
                                    " accepted are auto, cpu, cuda and reference"));
}

}  // namespace phasor
