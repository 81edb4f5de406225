// SPDX-License-Identifier: Apache-2.0
// Sums and copies received pieces, and makes the slots of items.
#include "server/engine/call.h"

#include <cstring>

namespace phasor::engine {

int64_t SegmentBytes(const Segments& segments) {
  int64_t bytes = 0;
  for (const absl::Span<const std::byte> segment : segments) {
    bytes += static_cast<int64_t>(segment.size());
  }
  return bytes;
}

void Gather(const Segments& segments, std::byte* out) {
  for (const absl::Span<const std::byte> segment : segments) {
    if (segment.empty()) continue;
    std::memcpy(out, segment.data(), segment.size());
    out += segment.size();
  }
}

Item::Item(Prepared request) : prepared(std::move(request)) {
  Slots slots = SlotsOf(prepared);
  inputs.reserve(slots.inputs.size());
  for (const InputSlot& slot : slots.inputs) inputs.push_back({slot});
  outputs.reserve(slots.outputs.size());
  for (const OutputSlot& slot : slots.outputs) outputs.push_back({slot});
}

const Input* Item::Find(Role role, int index) const {
  for (const Input& input : inputs) {
    if (input.slot.role == role && input.slot.index == index) return &input;
  }
  return nullptr;
}

bool IsSlow(const Item& item) {
  const Plan* const plan = item.status.ok() ? PlanOf(item.prepared) : nullptr;
  return plan != nullptr && plan->parity.has_value();
}

}  // namespace phasor::engine
