// SPDX-License-Identifier: Apache-2.0
// A GPU through the CUDA runtime, which is linked statically: the same binary also starts on a host
// without NVIDIA's driver, and OpenDevice then reports that there is no device.
#ifndef PHASOR_KERNELS_CUDA_CUDA_DRIVER_H_
#define PHASOR_KERNELS_CUDA_CUDA_DRIVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"

namespace phasor::cuda {

// Opens the first device that the runtime shows (CUDA_VISIBLE_DEVICES chooses).
// FAILED_PRECONDITION: no driver, no device, or none that the kernels were compiled for.
absl::StatusOr<std::unique_ptr<Driver>> OpenDevice();

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_CUDA_DRIVER_H_
