// SPDX-License-Identifier: Apache-2.0
// What the backend needs from a GPU: memory, copies, launches, and the errors of each. The CUDA
// runtime implements it (kernels/cuda/cuda_driver.h). Tests implement it on the host and inject
// errors.
#ifndef PHASOR_KERNELS_CUDA_DRIVER_H_
#define PHASOR_KERNELS_CUDA_DRIVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend/device_port.h"
#include "kernels/cuda/launch_list.h"

namespace phasor::cuda {

// A queue of the device. Its work runs in order.
using Stream = void*;

// What is known about a device.
struct DeviceInfo {
  int number = 0;    // of the runtime
  std::string name;  // the vendor's name for it
  std::array<uint8_t, 16> uuid = {};
  int major = 0;  // compute capability
  int minor = 0;
  int processors = 1;  // multiprocessors
};

// A mapped allocation of another process.
struct IpcMapping {
  std::byte* opened = nullptr;  // its first byte, aligned to 256 bytes, which also closes it
  int64_t bytes = 0;            // that are mapped from there on: its own, or more
};

// One device. Every error is one of
//
//   RESOURCE_EXHAUSTED  out of device memory or of pinned memory; nothing else is wrong
//   INTERNAL            this call or launch was refused; the next one may work
//   UNAVAILABLE         the device or its context is lost: every later call fails too
//
// An error of queued work is reported by some later call. Threads: any.
class Driver {
 public:
  virtual ~Driver() = default;

  virtual const DeviceInfo& device() const = 0;

  virtual absl::StatusOr<Stream> CreateStream() = 0;
  virtual void DestroyStream(Stream stream) = 0;

  // Device memory, aligned to 256 bytes.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;

  // Pinned host memory, which the device copies on its own, aligned to 256 bytes.
  virtual absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(std::byte* memory) = 0;

  // Maps the memory of a handle. Also INVALID_ARGUMENT: not a handle of memory on this device.
  virtual absl::StatusOr<IpcMapping> OpenIpc(const IpcHandle& handle) = 0;
  virtual void CloseIpc(const IpcMapping& mapping) = 0;

  // Queues a copy of `bytes` > 0. The caller must not change or free either side before the stream
  // is synchronized. Host memory that is not pinned works too, but slowly, and this call may then
  // wait.
  virtual absl::Status CopyToDevice(std::byte* device, const std::byte* host, int64_t bytes,
                                    Stream stream) = 0;
  virtual absl::Status CopyToHost(std::byte* host, const std::byte* device, int64_t bytes,
                                  Stream stream) = 0;
  // Queues a kernel.
  virtual absl::Status Run(const Launch& launch, Stream stream) = 0;
  // Waits for everything in the stream.
  virtual absl::Status Synchronize(Stream stream) = 0;

  // Ends the context and makes a fresh one. All streams, memory and mappings are gone; do not free
  // them afterwards. Nobody else may use the device meanwhile.
  virtual absl::Status Reset() = 0;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_DRIVER_H_
