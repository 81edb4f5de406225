// SPDX-License-Identifier: Apache-2.0
// Tests which calls can be cut, and where their parts are.
#include "client/common/runs.h"

#include <gtest/gtest.h>

#include "client/common/calls.h"

namespace phasor::client_internal {
namespace {

class RunsTest : public ::testing::Test {
 protected:
  RopeCall Call(std::vector<int64_t> shape, RopeLayout layout = RopeLayout::kTokensHeads) {
    return {.tensors = {MutableView(x_, std::move(shape))}, .layout = layout};
  }
  int64_t Offset(const TensorView& view) const {
    return (view.data - reinterpret_cast<const std::byte*>(x_.data())) / 4;
  }
  std::vector<float> x_ = std::vector<float>(2 * 10 * 3 * 8);
};

TEST_F(RunsTest, ARunIsAViewOfItsTokens) {
  for (const bool heads_first : {false, true}) {
    const RopeLayout layout = heads_first ? RopeLayout::kHeadsTokens : RopeLayout::kTokensHeads;
    const RopeCall call = heads_first ? Call({3, 10, 8}, layout) : Call({10, 3, 8}, layout);
    EXPECT_EQ(TokensOf(call), 10);
    EXPECT_EQ(BytesPerToken(call), 3 * 8 * 4);
    const RopeCall run = RunOf(call, {4, 5});
    EXPECT_EQ(TokensOf(run), 5);
    EXPECT_EQ(Offset(run.tensors[0].input), heads_first ? 4 * 8 : 4 * 24);
    EXPECT_EQ(run.tensors[0].output.data, run.tensors[0].input.data);
    EXPECT_TRUE(ToRequest(run, "item").ok());
  }
}

TEST_F(RunsTest, BatchEntriesHaveTheirTensorsAndPositions) {
  std::vector<int32_t> numbers(20);
  RopeCall call = Call({2, 10, 3, 8});
  call.positions = View(numbers, {2, 10});
  const auto entries = CutBatch(call);
  ASSERT_TRUE(entries.has_value());
  ASSERT_EQ(entries->size(), 2);
  EXPECT_EQ(Offset((*entries)[1].tensors[0].input), 10 * 3 * 8);
  EXPECT_EQ((*entries)[1].tensors[0].input.desc.shape, (std::vector<int64_t>{10, 3, 8}));
  EXPECT_EQ(PositionBytes((*entries)[1].positions).data(),
            reinterpret_cast<const std::byte*>(numbers.data() + 10));
  EXPECT_EQ(PositionBytes((*entries)[1].positions).size(), 40);
  EXPECT_TRUE(ToRequest((*entries)[1], "item").ok());
  call.positions = View(numbers, {10});  // shared
  EXPECT_EQ(PositionBytes((*CutBatch(call))[1].positions).data(),
            reinterpret_cast<const std::byte*>(numbers.data()));
}

TEST_F(RunsTest, WhatIsWrongOrAmbiguousIsNotCut) {
  EXPECT_FALSE(CutBatch(RopeCall{}).has_value());
  EXPECT_FALSE(CutBatch(Call({10, 8})).has_value());
  EXPECT_FALSE(CutBatch(Call({0, 3, 8})).has_value());
  RopeCall call = Call({10, 3, 8});
  call.tensors.push_back(MutableView(x_, {9, 3, 8}));
  EXPECT_FALSE(CutBatch(call).has_value());
  std::vector<int32_t> numbers(9);
  call = Call({3, 3, 3, 8});
  call.positions = View(numbers, {3, 3});  // a batch, or three axes
  EXPECT_FALSE(CutBatch(call).has_value());
}

}  // namespace
}  // namespace phasor::client_internal
