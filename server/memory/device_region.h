// SPDX-License-Identifier: Apache-2.0
// A part of another process' memory on the server's device, computed on where it lies.
#ifndef PHASOR_SERVER_MEMORY_DEVICE_REGION_H_
#define PHASOR_SERVER_MEMORY_DEVICE_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend/device_port.h"

namespace phasor::memory {

// Where a region is: bytes [offset, offset + bytes) of the allocation that `handle` stands for.
struct DevicePlace {
  IpcHandle handle = {};
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string device_uuid = {};  // of the device; empty: that of the handle
  int64_t device_id = 0;         // what the client calls the device; told back to it
  bool read_only = false;
};

// A handle as it arrives. INVALID_ARGUMENT: not 64 bytes; the message begins with `path`.
absl::StatusOr<IpcHandle> IpcHandleFrom(std::string_view bytes, std::string_view path);

// Threads: any; the client may change the bytes at any time. Keeps the allocation open.
class DeviceRegion {
 public:
  // `paths` are what the request calls its fields. INVALID_ARGUMENT: the device has another UUID,
  // the driver does not know the handle, the allocation ends before the region does; UNAVAILABLE:
  // the device is lost.
  struct Paths {
    std::string_view handle = "handle";
    std::string_view bytes = "byte_size";
    std::string_view uuid = "device_uuid";
  };
  static absl::StatusOr<std::shared_ptr<DeviceRegion>> Open(DevicePlace place, DevicePort* port,
                                                            const Paths& paths);
  DeviceRegion(const DeviceRegion&) = delete;
  DeviceRegion& operator=(const DeviceRegion&) = delete;

  const DevicePlace& place() const { return place_; }

  // Whether what it holds is neither input nor output any more: a computation in place failed in
  // the middle, or the device was lost.
  bool dirty() const { return dirty_.load(std::memory_order_relaxed) || !allocation_->usable(); }
  // The second of these: its addresses are of no use any more.
  bool lost() const { return !allocation_->usable(); }
  std::atomic<bool>* dirty_flag() { return &dirty_; }

  // The device's address of bytes [offset, offset + bytes), for jobs. INVALID_ARGUMENT: not all
  // inside; FAILED_PRECONDITION: dirty; PERMISSION_DENIED: to be written, and may only be read.
  absl::StatusOr<std::byte*> At(int64_t offset, int64_t bytes, bool write,
                                const std::string& path) const;

  // Copies from and to a range that At accepted. ABORTED, UNAVAILABLE: as DeviceAllocation.
  absl::Status Read(int64_t offset, int64_t bytes, std::byte* out) const {
    return allocation_->Read(place_.offset + offset, bytes, out);
  }
  absl::Status Write(int64_t offset, int64_t bytes, const std::byte* in) const {
    return allocation_->Write(place_.offset + offset, bytes, in);
  }

 private:
  DeviceRegion(DevicePlace place, std::shared_ptr<const DeviceAllocation> allocation)
      : place_(std::move(place)), allocation_(std::move(allocation)) {}

  const DevicePlace place_;
  const std::shared_ptr<const DeviceAllocation> allocation_;
  std::atomic<bool> dirty_ = false;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_DEVICE_REGION_H_
