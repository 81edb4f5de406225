// SPDX-License-Identifier: Apache-2.0
// Rotations of many MiB: tokens of 32 heads of 128 float32 lanes.
#ifndef PHASOR_TESTS_SUPPORT_LARGE_ROPE_H_
#define PHASOR_TESTS_SUPPORT_LARGE_ROPE_H_

#include <cstdint>
#include <string>

#include "phasor/v1/position_embedding_service.pb.h"
#include "tests/support/requests.h"

namespace phasor::testing {

inline constexpr int64_t kLargeHeads = 32;
inline constexpr int64_t kLargeTokenBytes = kLargeHeads * 128 * 4;

// Positions first, first + 1, ...
inline v1::ApplyRoPEItem LargeRopeAt(int64_t first, int64_t tokens) {
  v1::ApplyRoPEItem item;
  item.mutable_spec()->set_preset("rope-half-split");
  auto* range = item.mutable_positions()->mutable_range()->mutable_integer();
  range->set_start(first);
  range->set_count(tokens);
  SetShape(item.add_tensors()->mutable_tensor(), v1::DTYPE_FLOAT32, {tokens, kLargeHeads, 128});
  item.set_direction(v1::DIRECTION_FORWARD);
  item.set_layout(v1::ROPE_LAYOUT_TOKENS_HEADS);
  return item;
}

// Element bytes of so many tokens, the same for each.
inline std::string LargeRopePayload(int64_t tokens) {
  std::string bytes(static_cast<size_t>(tokens * kLargeTokenBytes), ' ');
  for (size_t i = 3; i < bytes.size(); i += 4) bytes[i] = static_cast<char>(0x3F - i % 2);
  return bytes;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_LARGE_ROPE_H_
