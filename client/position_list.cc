// SPDX-License-Identifier: Apache-2.0
// Constructors of PositionList that need more than one line.
#include "client/position_list.h"

#include <algorithm>

namespace phasor {

PositionList::PositionList(std::initializer_list<PositionValue> values) {
  const bool real =
      std::any_of(values.begin(), values.end(), [](const PositionValue& v) { return v.is_real(); });
  if (real) {
    std::vector<double> numbers;
    for (const PositionValue& v : values) numbers.push_back(v.real());
    *this = PositionList(std::move(numbers));
  } else {
    std::vector<int64_t> numbers;
    for (const PositionValue& v : values) numbers.push_back(v.integer());
    *this = PositionList(std::move(numbers));
  }
}

PositionList::PositionList(const TensorView& tensor)
    : value_(PositionTensor{tensor.desc.dtype, tensor.desc.shape}),
      bytes_(tensor.data, static_cast<size_t>(tensor.bytes)),
      strided_(!tensor.desc.strides.empty()),
      on_device_(tensor.device.memory != nullptr) {}

}  // namespace phasor
