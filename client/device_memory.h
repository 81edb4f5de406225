// SPDX-License-Identifier: Apache-2.0
// GPU memory of this process that is registered with a server, so that calls use it without a copy.
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

// An allocation of this process on the server's GPU. This library does not use CUDA: the caller
// gets these values from it.
struct CudaIpcAllocation {
  // The 64 bytes of the cudaIpcMemHandle_t that cudaIpcGetMemHandle gives for the allocation.
  std::string handle = {};
  // Bytes from the first byte of the allocation to the first byte that calls use; at least 0.
  // Allocators often hand out parts of a larger allocation, and the handle is that of the whole
  // allocation. cuMemGetAddressRange returns its first byte.
  int64_t offset_bytes = 0;
  // Bytes that calls may access, counted from there; at least 1. All must be inside the allocation.
  int64_t size_bytes = 0;
  // UUID of the GPU: "GPU-" and 32 hexadecimal digits in the usual groups, as in
  // ServerInfo::device_uuid.
  std::string device_uuid = {};
  // Whether calls may only read the memory. An output in it is then PERMISSION_DENIED.
  bool read_only = false;
};

// The registration of one piece of GPU memory with a server. A DeviceMemory and its views share it.
// Only connections make it. Threads: any.
class DeviceRegistration {
 public:
  // Unregisters the memory, and waits for at most `timeout`.
  using End = std::function<absl::Status(absl::Duration timeout)>;
  // `name` is the server's name for the memory. Only calls over `connection` may use it.
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
  // Unregisters the memory on the first call and does nothing later. From now on no new call may
  // use it.
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

// Registered GPU memory. Owns the registration and keeps the connection open. The memory itself
// stays the caller's, who may free it only after Release.
// Threads: one at a time may move or release it; any number may call View at once.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // For connections.
  explicit DeviceMemory(std::shared_ptr<DeviceRegistration> registration)
      : registration_(std::move(registration)) {}
  // Calls Release and ignores its status.
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&&) = default;
  DeviceMemory& operator=(DeviceMemory&& other);

  // Bytes; 0 after Release.
  int64_t size() const { return registration_ == nullptr ? 0 : registration_->size(); }

  // A view of the tensor `desc` that begins `offset_bytes` after the start of the registered
  // memory, in [0, size]. For an output, the offset must be a multiple of the element size. This
  // function does not check that; the call that uses the view does.
  MutableTensorView View(TensorDesc desc, int64_t offset_bytes = 0) const;

  // All of the registered memory from `offset_bytes`, in [0, size], on, for MoveKeys.
  KeyPool Pool(int64_t offset_bytes = 0) const;

  // Unregisters the memory and waits until the calls that use it are done. OK: the server has
  // closed the memory, or nothing was registered. DEADLINE_EXCEEDED: calls still use the memory, so
  // it must not be freed yet. NOT_FOUND: the server had already forgotten it. Other errors come
  // from the connection. Whatever the status, this object is empty afterwards, and calls that use
  // its views fail with FAILED_PRECONDITION.
  absl::Status Release(absl::Duration timeout = absl::Seconds(10));

 private:
  std::shared_ptr<DeviceRegistration> registration_;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_DEVICE_MEMORY_H_
