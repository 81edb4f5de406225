// SPDX-License-Identifier: Apache-2.0
// Binds inputs first, then outputs, in the order of the item's slots.
#include "server/api/shared_tensors.h"

#include <algorithm>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "proto/enums.h"

namespace phasor::rpc {

const memory::SharedTensor* SharedTensors::Find(Role role, int index) const {
  for (const Input& input : inputs) {
    if (input.role == role && input.index == index) return &input.tensor;
  }
  return nullptr;
}

absl::Status NotLikeResult(const ShapedType& output, std::string_view path) {
  return Invalid(path, ": not like the result; must have its dtype and shape, ",
                 v1::Dtype_Name(ToWire(output.dtype)), " and ", output.shape.size(), " dimensions");
}

absl::Status Bind(const SharedTensors& tensors, memory::Binding* binding, engine::Item* item) {
  for (size_t i = 0; i < item->inputs.size(); ++i) {
    const InputSlot& slot = item->inputs[i].slot;
    const memory::SharedTensor* const tensor = tensors.Find(slot.role, slot.index);
    if (tensor == nullptr) continue;
    PHASOR_RETURN_IF_ERROR(slot.reading == Reading::kInitial
                               ? binding->Cache(*tensor, static_cast<size_t>(slot.output), item)
                               : binding->Input(*tensor, i, item));
  }
  for (const SharedTensors::Output& output : tensors.outputs) {
    const ShapedType result = OutputOf(item->prepared, output.slot);
    if (!std::equal(result.shape.begin(), result.shape.end(), output.tensor.shape.begin(),
                    output.tensor.shape.end())) {
      return NotLikeResult(result, output.tensor.path);
    }
    PHASOR_RETURN_IF_ERROR(binding->Output(
        output.tensor, output.input.has_value() ? &*output.input : nullptr, output.slot, item));
  }
  return absl::OkStatus();
}

}  // namespace phasor::rpc
