// SPDX-License-Identifier: Apache-2.0
// Opens GPU memory of clients, and checks and copies ranges of it.
#include "server/memory/device_region.h"

#include <cstring>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/memory/range.h"

namespace phasor::memory {
namespace {

absl::Status CheckInside(const DevicePlace& place, int64_t size, std::string_view path) {
  return CheckPlace(place.offset, place.bytes, size, "the allocation", path);
}

}  // namespace

absl::StatusOr<IpcHandle> IpcHandleFrom(std::string_view bytes, std::string_view path) {
  if (bytes.size() != kIpcHandleBytes) {
    return InvalidAt(path, bytes.size(), " bytes; must be ", kIpcHandleBytes);
  }
  IpcHandle handle;
  std::memcpy(handle.data(), bytes.data(), handle.size());
  return handle;
}

absl::StatusOr<std::shared_ptr<DeviceRegion>> DeviceRegion::Open(DevicePlace place,
                                                                 const DeviceList& devices,
                                                                 const Paths& paths) {
  DevicePort* const device = devices.WithUuid(place.device_uuid);
  if (!place.device_uuid.empty() && device == nullptr) {
    return InvalidAt(
        paths.uuid, "'", place.device_uuid, "'; must be that of ",
        devices.size() == 1 ? "the server's device, " : "one of the server's devices, ",
        devices.Uuids());
  }
  // First the checks that need no GPU.
  PHASOR_RETURN_IF_ERROR(CheckInside(place, INT64_MAX, paths.bytes));
  auto memory = devices.Open(place.handle, device);
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        StrCat(paths.handle, ": ", memory.status().message()));
  }
  PHASOR_RETURN_IF_ERROR(CheckInside(place, memory->allocation->bytes(), paths.bytes));
  return std::shared_ptr<DeviceRegion>(new DeviceRegion(std::move(place), *std::move(memory)));
}

absl::StatusOr<std::byte*> DeviceRegion::At(int64_t offset, int64_t bytes, bool write,
                                            const std::string& path) const {
  PHASOR_RETURN_IF_ERROR(CheckRange(offset, bytes, place_.bytes, "the region", path));
  if (write && place_.read_only) {
    return absl::PermissionDeniedError(
        StrCat(path, ": registered to be read only; register it without read_only"));
  }
  if (dirty()) {
    return absl::FailedPreconditionError(
        StrCat(path,
               ": the region is dirty: a computation in place failed in the middle, or the "
               "device was lost; must be registered again"));
  }
  return memory_.allocation->data() + place_.offset + offset;
}

}  // namespace phasor::memory
