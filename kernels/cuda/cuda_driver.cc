// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/cuda/launch.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::cuda {
namespace {

// Errors that leave the context as it was. Of any other the runtime says nothing good: it is taken
// for lost.
bool IsHarmless(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotReady:
    case cudaErrorNotSupported:
      return true;
    default:
      return false;
  }
}

// Also takes the error out of the thread, so that the next call reports its own.
absl::Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string message =
      StrCat("cuda: ", what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  if (IsHarmless(error)) return absl::InternalError(message);
  return absl::UnavailableError(message);
}

class CudaDriver final : public Driver {
 public:
  CudaDriver(int index, DeviceInfo device) : index_(index), device_(std::move(device)) {}

  const DeviceInfo& device() const override { return device_; }

  absl::StatusOr<Stream> CreateStream() override {
    PHASOR_RETURN_IF_ERROR(Select());
    cudaStream_t stream = nullptr;
    PHASOR_RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream"));
    return Stream{stream};
  }
  void DestroyStream(Stream stream) override {
    cudaStreamDestroy(static_cast<cudaStream_t>(stream));
  }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    PHASOR_RETURN_IF_ERROR(Select());
    void* memory = nullptr;
    PHASOR_RETURN_IF_ERROR(ToStatus(cudaMalloc(&memory, static_cast<size_t>(bytes)),
                                    StrCat("allocate ", bytes, " bytes")));
    return static_cast<std::byte*>(memory);
  }
  void Free(std::byte* memory) override { cudaFree(memory); }

  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes) override {
    PHASOR_RETURN_IF_ERROR(Select());
    void* memory = nullptr;
    PHASOR_RETURN_IF_ERROR(ToStatus(cudaMallocHost(&memory, static_cast<size_t>(bytes)),
                                    StrCat("pin ", bytes, " bytes")));
    return static_cast<std::byte*>(memory);
  }
  void FreePinned(std::byte* memory) override { cudaFreeHost(memory); }

  absl::Status CopyToDevice(std::byte* device, const std::byte* pinned, int64_t bytes,
                            Stream stream) override {
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(cudaMemcpyAsync(device, pinned, static_cast<size_t>(bytes),
                                    cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
                    "copy to the device");
  }
  absl::Status CopyToHost(std::byte* pinned, const std::byte* device, int64_t bytes,
                          Stream stream) override {
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(cudaMemcpyAsync(pinned, device, static_cast<size_t>(bytes),
                                    cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream)),
                    "copy from the device");
  }

  absl::Status Run(const Launch& launch, Stream stream) override {
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(static_cast<cudaError_t>(LaunchKernel(launch.kernel, launch.batch, stream)),
                    "launch");
  }

  absl::Status Synchronize(Stream stream) override {
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "synchronize");
  }

 private:
  // The runtime's current device belongs to the thread.
  absl::Status Select() const { return ToStatus(cudaSetDevice(index_), "select the device"); }

  const int index_;
  const DeviceInfo device_;
};

absl::Status NoDevice(cudaError_t error, std::string_view what) {
  cudaGetLastError();
  return absl::FailedPreconditionError(
      StrCat("backend: no CUDA device: ", what, ": ", cudaGetErrorString(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Driver>> OpenDevice() {
  constexpr int kDevice = 0;
  int driver_version = 0;  // stays 0 where there is none
  cudaDriverGetVersion(&driver_version);
  if (driver_version == 0) {
    return absl::FailedPreconditionError(
        "backend: no CUDA device: this host has no NVIDIA driver, accepted are auto and cpu");
  }
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return NoDevice(error, "the runtime counts none");
  }
  if (count == 0) return absl::FailedPreconditionError("backend: no CUDA device on this host");
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, kDevice);
      error != cudaSuccess) {
    return NoDevice(error, "its properties");
  }
  if (const auto error = static_cast<cudaError_t>(CanLaunch(kDevice)); error != cudaSuccess) {
    return NoDevice(error, StrCat(properties.name, ", compute capability ", properties.major, ".",
                                  properties.minor, ", cannot run the kernels of this build"));
  }
  DeviceInfo device;
  device.name = properties.name;
  std::copy_n(reinterpret_cast<const uint8_t*>(properties.uuid.bytes), device.uuid.size(),
              device.uuid.begin());
  device.major = properties.major;
  device.minor = properties.minor;
  device.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return std::make_unique<CudaDriver>(kDevice, std::move(device));
}

}  // namespace phasor::cuda
