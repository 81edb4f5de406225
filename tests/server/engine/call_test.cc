// SPDX-License-Identifier: Apache-2.0
// Items: one slot for each tensor of the request.
#include "server/engine/call.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/test_call.h"

namespace phasor::engine {
namespace {

TEST(ItemTest, HasTheSlotsOfItsRequest) {
  Item item(BytesRequest(16));
  ASSERT_EQ(item.inputs.size(), 1);
  ASSERT_EQ(item.outputs.size(), 1);
  EXPECT_EQ(item.Find(Role::kTensor), &item.inputs[0]);
  EXPECT_EQ(item.inputs[0].slot.bytes, 16);
  EXPECT_EQ(item.Find(Role::kTensor, 1), nullptr);
  EXPECT_EQ(item.Find(Role::kFromPositions), nullptr);
  EXPECT_TRUE(item.outputs[0].place.in_answer());
  EXPECT_FALSE(IsSlow(item));
}

TEST(ItemTest, AFailedOneHasNoSlots) {
  const Item item(absl::CancelledError("gone"));
  EXPECT_EQ(item.Find(Role::kTensor), nullptr);
  EXPECT_FALSE(IsSlow(item));
}

TEST(ItemTest, ComparisonsAndNarrowRowsAreSlow) {
  PreparedMove move;
  EXPECT_FALSE(IsSlow(ItemOf(move)));
  move.mode = MoveMode::kCompare;
  EXPECT_TRUE(IsSlow(ItemOf(move)));

  for (const int64_t columns : {15, 16}) {
    PreparedEncode encode;
    encode.plan = std::make_shared<const Plan>();
    encode.output = {Dtype::kBFloat16, {1000, columns}};
    EXPECT_EQ(IsSlow(ItemOf(encode)), columns * 2 < kNarrowRowBytes);
  }
}

}  // namespace
}  // namespace phasor::engine
