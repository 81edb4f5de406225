// SPDX-License-Identifier: Apache-2.0
// DeviceRegion: GPU memory of another process, on which jobs compute where it lies.
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
#include "kernels/backend/device_list.h"

namespace phasor::memory {

// The place of a region: bytes [offset, offset + bytes) of the allocation with this handle.
struct DevicePlace {
  IpcHandle handle = {};
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string device_uuid = {};  // of the GPU; empty: the GPU of the handle
  int64_t device_id = 0;         // the client's number of the GPU; returned to it
  bool read_only = false;
};

// Reads a handle from a request. INVALID_ARGUMENT "<path>: ...": not 64 bytes.
absl::StatusOr<IpcHandle> IpcHandleFrom(std::string_view bytes, std::string_view path);

// An open region. Keeps the allocation open. The client may change its bytes at any time.
// Threads: any.
class DeviceRegion {
 public:
  // `paths` are the names of the fields in the request.
  // INVALID_ARGUMENT: no GPU of `devices` has the UUID, the driver does not know the handle, or the
  // allocation ends before the region. UNAVAILABLE: the GPU is lost.
  struct Paths {
    std::string_view handle = "handle";
    std::string_view bytes = "byte_size";
    std::string_view uuid = "device_uuid";
    std::string_view name = "name";  // DeviceRegionStore::Register reads it
  };
  static absl::StatusOr<std::shared_ptr<DeviceRegion>> Open(DevicePlace place,
                                                            const DeviceList& devices,
                                                            const Paths& paths);
  DeviceRegion(const DeviceRegion&) = delete;
  DeviceRegion& operator=(const DeviceRegion&) = delete;

  const DevicePlace& place() const { return place_; }
  // Its GPU.
  const DevicePort& device() const { return *memory_.device; }

  // Whether the memory holds neither input nor output any more: a computation in place failed
  // midway, or the GPU was lost.
  bool dirty() const {
    return dirty_.load(std::memory_order_relaxed) || !memory_.allocation->usable();
  }
  // Whether the GPU was lost. Addresses of the region are then invalid.
  bool lost() const { return !memory_.allocation->usable(); }
  std::atomic<bool>* dirty_flag() { return &dirty_; }

  // The GPU address of bytes [offset, offset + bytes), for jobs. INVALID_ARGUMENT: they are not all
  // inside. FAILED_PRECONDITION: the region is dirty. PERMISSION_DENIED: `write`, but it is
  // read-only.
  absl::StatusOr<std::byte*> At(int64_t offset, int64_t bytes, bool write,
                                const std::string& path) const;

  // Copy from and to a range that At accepted. ABORTED, UNAVAILABLE: as in DeviceAllocation.
  absl::Status Read(int64_t offset, int64_t bytes, std::byte* out) const {
    return memory_.allocation->Read(place_.offset + offset, bytes, out);
  }
  absl::Status Write(int64_t offset, int64_t bytes, const std::byte* in) const {
    return memory_.allocation->Write(place_.offset + offset, bytes, in);
  }

 private:
  DeviceRegion(DevicePlace place, OpenedMemory memory)
      : place_(std::move(place)), memory_(std::move(memory)) {}

  const DevicePlace place_;
  const OpenedMemory memory_;
  std::atomic<bool> dirty_ = false;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_DEVICE_REGION_H_
