// SPDX-License-Identifier: Apache-2.0
// Makes the slots of items.
#include "server/engine/call.h"

namespace phasor::engine {

Item::Item(Prepared&& request) : prepared(std::move(request)) {
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
