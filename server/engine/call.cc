// SPDX-License-Identifier: Apache-2.0
// Makes the slots of items.
#include "server/engine/call.h"

namespace phasor::engine {

void Item::MakeSlots() {
  const Slots slots = SlotsOf(prepared);
  inputs.resize(slots.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].slot = slots.inputs[i];
  outputs.resize(slots.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i].slot = slots.outputs[i];
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
