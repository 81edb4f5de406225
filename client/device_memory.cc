// SPDX-License-Identifier: Apache-2.0
// Moving, releasing and viewing of registered GPU memory.
#include "client/device_memory.h"

namespace phasor {

DeviceMemory::~DeviceMemory() { Release().IgnoreError(); }

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) {
  if (this == &other) return *this;
  Release().IgnoreError();
  registration_ = std::move(other.registration_);
  return *this;
}

MutableTensorView DeviceMemory::View(TensorDesc desc, int64_t offset_bytes) const {
  const bool inside = offset_bytes >= 0 && offset_bytes <= size();
  return {
      std::move(desc), nullptr, inside ? size() - offset_bytes : 0, {registration_, offset_bytes}};
}

KeyPool DeviceMemory::Pool(int64_t offset_bytes) const {
  return {View({}, offset_bytes).device, View({}, offset_bytes).bytes};
}

absl::Status DeviceMemory::Release(absl::Duration timeout) {
  const auto registration = std::exchange(registration_, nullptr);
  return registration == nullptr ? absl::OkStatus() : registration->Finish(timeout);
}

}  // namespace phasor
