// SPDX-License-Identifier: Apache-2.0
// GPUs through the CUDA runtime, which is linked statically: the same binary also starts on a host
// without NVIDIA's driver, and OpenDevice then reports that there is no device.
#ifndef PHASOR_KERNELS_CUDA_CUDA_DRIVER_H_
#define PHASOR_KERNELS_CUDA_CUDA_DRIVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"

namespace phasor::cuda {

// The names of the devices that the runtime shows, in the order of their numbers
// (CUDA_VISIBLE_DEVICES chooses and orders them); not empty. FAILED_PRECONDITION: no driver or no
// device.
absl::StatusOr<std::vector<std::string>> ListDevices();

// Opens the device with this number. FAILED_PRECONDITION also: there is no such device, or the
// kernels were not compiled for it.
absl::StatusOr<std::unique_ptr<Driver>> OpenDevice(int number = 0);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_CUDA_DRIVER_H_
