// SPDX-License-Identifier: Apache-2.0
// The devices of a backend: finds one by its UUID, and the one that a handle's memory is on.
#ifndef PHASOR_KERNELS_BACKEND_DEVICE_LIST_H_
#define PHASOR_KERNELS_BACKEND_DEVICE_LIST_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend/device_port.h"

namespace phasor {

// "device 2 (NVIDIA H100, GPU-...)", for messages.
std::string NameOf(const DevicePort& device);

// An open allocation and its device.
struct OpenedMemory {
  DevicePort* device = nullptr;
  std::shared_ptr<const DeviceAllocation> allocation;
};

// Devices in the order of their numbers. A plain value that borrows them. Threads: any.
class DeviceList {
 public:
  DeviceList() = default;
  DeviceList(std::initializer_list<DevicePort*> devices) : devices_(devices) {}
  explicit DeviceList(std::vector<DevicePort*> devices) : devices_(std::move(devices)) {}

  bool empty() const { return devices_.empty(); }
  size_t size() const { return devices_.size(); }
  DevicePort& operator[](size_t i) const { return *devices_[i]; }
  auto begin() const { return devices_.begin(); }
  auto end() const { return devices_.end(); }

  // nullptr: no device has this UUID.
  DevicePort* WithUuid(std::string_view uuid) const;
  // The UUIDs of all, separated by commas.
  std::string Uuids() const;

  // Opens an allocation on `device`; nullptr: on the device that knows the handle, for which each
  // is asked. INVALID_ARGUMENT: no device that was asked knows it. UNAVAILABLE: one that may know
  // it is lost; or calls still hold memory of a lost device that had the same addresses.
  absl::StatusOr<OpenedMemory> Open(const IpcHandle& handle, DevicePort* device = nullptr) const;

  // Copies bytes that are all in host memory, or all in open allocations of one of the devices.
  // ABORTED, UNAVAILABLE: as in DeviceAllocation.
  absl::Status Read(const std::byte* from, int64_t bytes, std::byte* out) const;

 private:
  absl::StatusOr<OpenedMemory> OpenOn(DevicePort* device, const IpcHandle& handle) const;

  std::vector<DevicePort*> devices_;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKEND_DEVICE_LIST_H_
