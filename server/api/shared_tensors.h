// SPDX-License-Identifier: Apache-2.0
// SharedTensors: the tensors of an item that lie in shared memory, as its message names them. What
// they name is looked up when the item is bound, in every call.
#ifndef PHASOR_SERVER_API_SHARED_TENSORS_H_
#define PHASOR_SERVER_API_SHARED_TENSORS_H_

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/request/prepared.h"
#include "server/engine/call.h"
#include "server/memory/binding.h"

namespace phasor::rpc {

struct SharedTensors {
  struct Input {
    Role role = Role::kTensor;
    int index = 0;  // as InputSlot::index
    memory::SharedTensor tensor = {};
  };
  struct Output {
    size_t slot = 0;
    memory::SharedTensor tensor = {};
    // The tensor that it is computed from, wherever that lies.
    std::optional<memory::SharedTensor> input = std::nullopt;
  };

  std::vector<Input> inputs = {};
  std::vector<Output> outputs = {};

  bool empty() const { return inputs.empty() && outputs.empty(); }
  // The input in that role; nullptr: it is in the message.
  const memory::SharedTensor* Find(Role role, int index) const;
};

// An output that its destination, at `path`, does not fit.
absl::Status NotLikeResult(const ShapedType& output, std::string_view path);

// Gives those inputs their bytes and those outputs their places. The item must have its slots, and
// its destinations the dtypes of its outputs. INVALID_ARGUMENT: a destination has another shape
// than its output. Other errors: as Binding's.
absl::Status Bind(const SharedTensors& tensors, memory::Binding* binding, engine::Item* item);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_SHARED_TENSORS_H_
