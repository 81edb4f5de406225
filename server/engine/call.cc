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
  if (!item.status.ok()) return false;
  const Plan* const plan = PlanOf(item.prepared);
  if (plan != nullptr && plan->parity.has_value()) return true;
  if (const auto* const move = std::get_if<PreparedMove>(&item.prepared)) {
    return move->mode == MoveMode::kCompare;
  }
  const auto* const encode = std::get_if<PreparedEncode>(&item.prepared);
  if (encode == nullptr || encode->output.shape.empty()) return false;
  return encode->output.shape.back() * SizeOf(encode->output.dtype) < kNarrowRowBytes;
}

}  // namespace phasor::engine
