// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that a server computes on where it lies. No hardware has confirmed it yet.
#ifndef PHASOR_CLIENT_DEVICE_MEMORY_H_
#define PHASOR_CLIENT_DEVICE_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/tensor.h"

namespace phasor {

// Memory of this process on the server's GPU. This library knows no CUDA: the caller asks it.
struct CudaIpcAllocation {
  // The 64 bytes of the cudaIpcMemHandle_t that cudaIpcGetMemHandle gives for the allocation.
  std::string handle = {};
  // From the allocation's first byte to the first that is used: allocators hand out parts of larger
  // allocations, whose handles are those of the whole (cuMemGetAddressRange tells where it begins).
  // At least 0.
  int64_t offset_bytes = 0;
  // Bytes that calls may touch, from there on. At least 1; all inside the allocation.
  int64_t size_bytes = 0;
  // Of the GPU: "GPU-" and 32 hexadecimal digits in the usual groups, as ServerInfo::device_uuid.
  std::string device_uuid = {};
  // Whether calls may only read it: an output there is PERMISSION_DENIED.
  bool read_only = false;
};

// What a server knows memory by, which views of it share. For connections. Threads: any.
class DeviceRegistration {
 public:
  // Unregisters within a time.
  using End = std::function<absl::Status(absl::Duration timeout)>;
  // `name` is the server's; `connection` stands for the one whose calls may use it.
  DeviceRegistration(std::string name, int64_t size, std::shared_ptr<const void> connection,
                     End end)
      : name_(std::move(name)),
        size_(size),
        connection_(std::move(connection)),
        end_(std::move(end)) {}

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }
  bool IsOf(const void* connection) const { return connection_.get() == connection; }
  bool ended() const { return ended_; }
  // Unregisters the first time. No call begins with it from now on.
  absl::Status Finish(absl::Duration timeout) {
    return ended_.exchange(true) ? absl::OkStatus() : end_(timeout);
  }

 private:
  const std::string name_;
  const int64_t size_;
  const std::shared_ptr<const void> connection_;
  const End end_;
  std::atomic<bool> ended_ = false;
};

// Registered memory of a GPU. Threads: a plain value; views may be made from any at once. Owns the
// registration and keeps the connection open; the memory stays the caller's, who frees it after
// Release.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // For connections.
  explicit DeviceMemory(std::shared_ptr<DeviceRegistration> registration)
      : registration_(std::move(registration)) {}
  // Release, whose status is lost.
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&&) = default;
  DeviceMemory& operator=(DeviceMemory&& other);

  // Bytes; 0 after Release.
  int64_t size() const { return registration_ == nullptr ? 0 : registration_->size(); }

  // The tensor `desc` that begins `offset_bytes` after the registered part does, in [0, size]: a
  // multiple of the element's size if it is an output. Says nothing if that is wrong, the call
  // does.
  MutableTensorView View(TensorDesc desc, int64_t offset_bytes = 0) const;

  // Unregisters, and waits until calls that use the memory are done. OK: the server has closed it,
  // or nothing is held. DEADLINE_EXCEEDED: calls still use it, so that it must not be freed.
  // NOT_FOUND: the server had forgotten it. Other errors are the connection's. Whatever it answers,
  // views are FAILED_PRECONDITION from now on, and nothing is held.
  absl::Status Release(absl::Duration timeout = absl::Seconds(10));

 private:
  std::shared_ptr<DeviceRegistration> registration_;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_DEVICE_MEMORY_H_
