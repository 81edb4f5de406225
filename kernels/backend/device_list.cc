// SPDX-License-Identifier: Apache-2.0
// Asks devices one after another.
#include "kernels/backend/device_list.h"

#include <cstring>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {

std::string NameOf(const DevicePort& device) {
  return StrCat("device ", device.device_number(), " (", device.device_name(), ", ",
                device.device_uuid(), ")");
}

DevicePort* DeviceList::WithUuid(std::string_view uuid) const {
  for (DevicePort* const device : devices_) {
    if (device->device_uuid() == uuid) return device;
  }
  return nullptr;
}

std::string DeviceList::Uuids() const {
  std::string uuids;
  for (const DevicePort* const device : devices_) {
    uuids += StrCat(uuids.empty() ? "" : ", ", device->device_uuid());
  }
  return uuids;
}

absl::StatusOr<OpenedMemory> DeviceList::Open(const IpcHandle& handle, DevicePort* device) const {
  if (device != nullptr) return OpenOn(device, handle);
  absl::Status error = absl::InvalidArgumentError("there is no device");
  for (DevicePort* const each : devices_) {
    absl::StatusOr<OpenedMemory> opened = OpenOn(each, handle);
    if (opened.ok()) return opened;
    // What one device does not know may be on another; what one could not tell may be its own.
    if (absl::IsInvalidArgument(error)) error = std::move(opened).status();
  }
  return error;
}

absl::Status DeviceList::Read(const std::byte* from, int64_t bytes, std::byte* out) const {
  if (bytes == 0) return absl::OkStatus();
  for (const DevicePort* const device : devices_) {
    if (device->Holds(from, bytes)) return device->Read(from, bytes, out);
  }
  std::memcpy(out, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::StatusOr<OpenedMemory> DeviceList::OpenOn(DevicePort* device, const IpcHandle& handle) const {
  OpenedMemory opened{device, nullptr};
  PHASOR_ASSIGN_OR_RETURN(opened.allocation, device->Open(handle));
  // Addresses tell devices apart. After a loss, another device may get addresses that calls still
  // take for the lost device's. Each opening looks after it has been recorded, so of two that meet
  // at least one sees the other.
  for (const DevicePort* const other : devices_) {
    if (other == device) continue;
    if (other->Holds(opened.allocation->data(), opened.allocation->bytes())) {
      return absl::UnavailableError(
          "cuda: calls still hold memory of before a device was lost, try again");
    }
  }
  return opened;
}

}  // namespace phasor
