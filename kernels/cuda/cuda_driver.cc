// SPDX-License-Identifier: Apache-2.0
// Implements Driver with the CUDA runtime: streams, memory, copies, launches, IPC
// mappings, and the translation of CUDA errors.
#include "kernels/cuda/cuda_driver.h"

#include <cuda.h>  // types of the driver only
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/cuda/launch.h"

namespace phasor::cuda {
namespace {

// Errors after which the context still works. After any other error it is taken for lost.
bool IsHarmless(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorNotReady:
    case cudaErrorNotSupported:
      return true;
    default:
      return false;
  }
}

// Also clears the thread's last error, so that the next call reports its own.
absl::Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string message =
      StrCat("cuda: ", what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  if (IsHarmless(error)) return absl::InternalError(message);
  return absl::UnavailableError(message);
}

// For a call whose error changes nothing: the thread's next call must not report it as its own.
void Forget(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
}

// cuMemGetAddressRange, found through the runtime, because nothing is linked to the driver.
using GetRange = CUresult (*)(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer);
absl::StatusOr<GetRange> FindGetRange() {
  constexpr unsigned kSince = 3020;  // the version of CUDA that introduced this signature
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function,
                                                             kSince, cudaEnableDefault, &found);
#else
  (void)kSince;
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuMemGetAddressRange", &function, cudaEnableDefault, &found);
#endif
  PHASOR_RETURN_IF_ERROR(ToStatus(error, "look for cuMemGetAddressRange"));
  if (found != cudaDriverEntryPointSuccess) {
    return absl::InternalError("cuda: the driver has no cuMemGetAddressRange");
  }
  return reinterpret_cast<GetRange>(function);
}

// The status of opening a handle. An error means that the handle cannot be opened; it does not mean
// that the device is lost, because then every call fails.
absl::Status OpenStatus(cudaError_t error) {
  absl::Status status = ToStatus(error, "open the memory of a handle");
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  size_t free_bytes = 0, all_bytes = 0;
  const cudaError_t works = cudaMemGetInfo(&free_bytes, &all_bytes);
  Forget(works);
  if (works != cudaSuccess) return status;
  return absl::InvalidArgumentError(status.message());
}

cudaStream_t Queue(Stream stream) { return static_cast<cudaStream_t>(stream); }

// The device with number `index_` of the runtime. Threads: any.
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
    Select().IgnoreError();
    Forget(cudaStreamDestroy(Queue(stream)));
  }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    PHASOR_RETURN_IF_ERROR(Select());
    void* memory = nullptr;
    PHASOR_RETURN_IF_ERROR(ToStatus(cudaMalloc(&memory, static_cast<size_t>(bytes)),
                                    StrCat("allocate ", bytes, " bytes")));
    return static_cast<std::byte*>(memory);
  }
  void Free(std::byte* memory) override {
    Select().IgnoreError();
    Forget(cudaFree(memory));
  }

  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes) override {
    PHASOR_RETURN_IF_ERROR(Select());
    void* memory = nullptr;
    PHASOR_RETURN_IF_ERROR(ToStatus(cudaMallocHost(&memory, static_cast<size_t>(bytes)),
                                    StrCat("pin ", bytes, " bytes")));
    return static_cast<std::byte*>(memory);
  }
  void FreePinned(std::byte* memory) override {
    Select().IgnoreError();
    Forget(cudaFreeHost(memory));
  }

  absl::StatusOr<IpcMapping> OpenIpc(const IpcHandle& handle) override {
    PHASOR_RETURN_IF_ERROR(Select());
    cudaIpcMemHandle_t wanted;
    static_assert(sizeof wanted == kIpcHandleBytes);
    std::memcpy(&wanted, handle.data(), sizeof wanted);
    void* opened = nullptr;
    PHASOR_RETURN_IF_ERROR(
        OpenStatus(cudaIpcOpenMemHandle(&opened, wanted, cudaIpcMemLazyEnablePeerAccess)));
    auto mapping = Describe(opened);
    if (!mapping.ok()) Forget(cudaIpcCloseMemHandle(opened));
    return mapping;
  }
  void CloseIpc(const IpcMapping& mapping) override {
    Select().IgnoreError();
    Forget(cudaIpcCloseMemHandle(mapping.opened));
  }

  absl::Status CopyToDevice(std::byte* device, const std::byte* host, int64_t bytes,
                            Stream stream) override {
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes),
                                    cudaMemcpyHostToDevice, Queue(stream)),
                    "copy to the device");
  }
  absl::Status CopyToHost(std::byte* host, const std::byte* device, int64_t bytes,
                          Stream stream) override {
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes),
                                    cudaMemcpyDeviceToHost, Queue(stream)),
                    "copy from the device");
  }

  absl::Status Run(const Launch& launch, Stream stream) override {
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(
        static_cast<cudaError_t>(LaunchKernel(launch.kernel, launch.batch, Queue(stream))),
        "launch");
  }

  absl::Status Synchronize(Stream stream) override {
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(cudaStreamSynchronize(Queue(stream)), "synchronize");
  }

  absl::Status Reset() override {
    Select().IgnoreError();  // a lost device may refuse even this
    cudaDeviceReset();       // may return the error of the old context, which it ends all the same
    cudaGetLastError();      // also of what a lost device gave to all that
    PHASOR_RETURN_IF_ERROR(Select());
    return ToStatus(cudaFree(nullptr), "make a fresh context");
  }

 private:
  // Asks the driver about opened memory. The mapping may begin before it: small allocations are
  // parts of larger blocks, and a block is mapped as a whole. INVALID_ARGUMENT: the memory is on
  // another device.
  absl::StatusOr<IpcMapping> Describe(void* opened) const {
    cudaPointerAttributes attributes;
    PHASOR_RETURN_IF_ERROR(
        ToStatus(cudaPointerGetAttributes(&attributes, opened), "ask for a pointer's device"));
    if (attributes.type != cudaMemoryTypeDevice || attributes.device != index_) {
      return absl::InvalidArgumentError("cuda: the handle is of another device's memory");
    }
    PHASOR_ASSIGN_OR_RETURN(const auto get_range, FindGetRange());
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const auto begin = reinterpret_cast<CUdeviceptr>(opened);
    if (get_range(&base, &bytes, begin) != CUDA_SUCCESS || begin - base > bytes) {
      return absl::InternalError("cuda: the driver does not know the allocation of a handle");
    }
    return IpcMapping{static_cast<std::byte*>(opened),
                      static_cast<int64_t>(bytes - (begin - base))};
  }

  // The runtime keeps the current device per thread. A thread that frees may have had another one,
  // which may be lost.
  absl::Status Select() const { return ToStatus(cudaSetDevice(index_), "select the device"); }

  const int index_;
  const DeviceInfo device_;
};

absl::Status NoDevice(cudaError_t error, std::string_view what) {
  cudaGetLastError();
  return absl::FailedPreconditionError(
      StrCat("backend: no CUDA device: ", what, ": ", cudaGetErrorString(error)));
}

// How many devices there are; > 0.
absl::StatusOr<int> CountDevices() {
  int driver_version = 0;  // stays 0 if there is no driver
  cudaDriverGetVersion(&driver_version);
  if (driver_version == 0) {
    return absl::FailedPreconditionError(
        "backend: no CUDA device: this host has no NVIDIA driver; accepted are auto, cpu and "
        "reference");
  }
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return NoDevice(error, "the runtime counts none");
  }
  if (count == 0) return absl::FailedPreconditionError("backend: no CUDA device on this host");
  return count;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListDevices() {
  PHASOR_ASSIGN_OR_RETURN(const int count, CountDevices());
  std::vector<std::string> names;
  for (int number = 0; number < count; ++number) {
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, number);
    if (error != cudaSuccess) cudaGetLastError();  // OpenDevice says what is wrong with it
    names.emplace_back(error == cudaSuccess ? properties.name : "not known");
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Driver>> OpenDevice(int number) {
  PHASOR_ASSIGN_OR_RETURN(const int count, CountDevices());
  if (number < 0 || number >= count) {
    return absl::FailedPreconditionError(
        StrCat("backend: no CUDA device ", number, ", this host has ", count, " from 0"));
  }
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, number);
      error != cudaSuccess) {
    return NoDevice(error, StrCat("the properties of device ", number));
  }
  if (const auto error = static_cast<cudaError_t>(CanLaunch(number)); error != cudaSuccess) {
    return NoDevice(error, StrCat(properties.name, ", compute capability ", properties.major, ".",
                                  properties.minor, ", cannot run the kernels of this build"));
  }
  DeviceInfo device;
  device.number = number;
  device.name = properties.name;
  device.processors = properties.multiProcessorCount;
  std::copy_n(reinterpret_cast<const uint8_t*>(properties.uuid.bytes), device.uuid.size(),
              device.uuid.begin());
  device.major = properties.major;
  device.minor = properties.minor;
  return std::make_unique<CudaDriver>(number, std::move(device));
}

}  // namespace phasor::cuda
