// SPDX-License-Identifier: Apache-2.0
// The columns, lanes, heads and layers that the description of a plan lists.
#include "kernels/plan/plan_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/plan/plan.h"
#include "tests/support/specs.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::Encoding;
using testing::PresetSpec;
using testing::Resolve;
using testing::Rotary;
using testing::With;

std::vector<PairDetail> Details(const Spec& spec) {
  const auto plan = CompilePlan(Resolve(spec));
  EXPECT_THAT(plan, testing::IsOk());
  return DetailsOf(**plan);
}

std::vector<int64_t> Sines(const std::vector<PairDetail>& details) {
  std::vector<int64_t> columns;
  for (const PairDetail& detail : details) columns.push_back(detail.sine_column.value_or(-1));
  return columns;
}

std::vector<int64_t> Cosines(const std::vector<PairDetail>& details) {
  std::vector<int64_t> columns;
  for (const PairDetail& detail : details) columns.push_back(detail.cosine_column.value_or(-1));
  return columns;
}

TEST(DetailsOfTest, NamesTheColumnsOfEncodings) {
  const auto interleaved = Details(Encoding(6));
  EXPECT_THAT(Sines(interleaved), ElementsAre(0, 2, 4));
  EXPECT_THAT(Cosines(interleaved), ElementsAre(1, 3, 5));
  const auto padded = Details(With(PresetSpec("timestep-cos-sin"), &Spec::dim, 7));
  EXPECT_THAT(Cosines(padded), ElementsAre(0, 1, 2));
  EXPECT_THAT(Sines(padded), ElementsAre(3, 4, 5));
  const auto front = Details(With(Encoding(6), &Spec::pad_front, 2));
  EXPECT_THAT(Sines(front), ElementsAre(2, 4));
  const auto alone = Details(With(Encoding(3), &Spec::order, TrigOrder::kCosOnly));
  EXPECT_THAT(Sines(alone), ElementsAre(-1, -1, -1));
  EXPECT_THAT(Cosines(alone), ElementsAre(0, 1, 2));
}

TEST(DetailsOfTest, SplitsOddWidthsAsRoFormerDoes) {
  Spec split = With(Encoding(5), &Spec::odd_dim, OddDim::kSplit);
  EXPECT_THAT(Sines(Details(split)), ElementsAre(0, 2, 4));
  EXPECT_THAT(Cosines(Details(split)), ElementsAre(1, 3, -1));
  split.arrangement = Arrangement::kConcatenated;
  EXPECT_THAT(Sines(Details(split)), ElementsAre(0, 1, 2));
  EXPECT_THAT(Cosines(Details(split)), ElementsAre(3, 4, -1));
}

TEST(DetailsOfTest, SkipsPairsThatOnlyPadBlocks) {
  const auto details = Details(With(PresetSpec("timm-2d"), &Spec::dim, 12));
  EXPECT_THAT(Sines(details), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Cosines(details), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_EQ(details[3].axis, 1);
  EXPECT_EQ(details[3].pair, 3);
}

TEST(DetailsOfTest, NamesTheLanesOfHeads) {
  Spec spec = With(With(Rotary(10), &Spec::rotary_begin, 2), &Spec::rotary_dim, 6);
  spec.pairing_out = Pairing::kInterleaved;
  const auto details = Details(spec);
  ASSERT_EQ(details.size(), 3u);
  EXPECT_EQ(details[1].first_lane, 3);
  EXPECT_EQ(details[1].second_lane, 6);
  EXPECT_EQ(details[1].first_lane_out, 4);
  EXPECT_EQ(details[1].second_lane_out, 5);
  EXPECT_EQ(details[0].inv_freq, 1.0);
  EXPECT_FALSE(details[0].sine_column.has_value());
}

TEST(DetailsOfTest, NamesTheLanesOfPairsInBlocks) {
  Spec spec = With(With(Rotary(11), &Spec::rotary_begin, 1), &Spec::rotary_dim, 10);
  spec.axes_dim = {4, 6};
  spec.pairing = Pairing::kBlockHalfSplit;
  std::vector<int64_t> first, second;
  for (const PairDetail& detail : Details(spec)) {
    first.push_back(*detail.first_lane);
    second.push_back(*detail.second_lane_out);
  }
  EXPECT_THAT(first, ElementsAre(1, 2, 5, 6, 7));
  EXPECT_THAT(second, ElementsAre(3, 4, 8, 9, 10));
}

TEST(DetailsOfTest, ListsHeadsAndLayers) {
  Spec spec = With(Rotary(6), &Spec::family, FrequencyFamily::kExplicit);
  spec.axes = 2;
  spec.axis_rule = AxisRule::kDense;
  spec.frequency_heads = 2;
  spec.frequency_unit = FrequencyUnit::kTurns;
  spec.inv_freq = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<int64_t> heads, pairs, axes, turns;
  for (const PairDetail& detail : Details(spec)) {
    heads.push_back(detail.head);
    pairs.push_back(detail.pair);
    axes.push_back(detail.axis);
    turns.push_back(detail.turns.whole);
  }
  EXPECT_THAT(heads, ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(pairs, ElementsAre(0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2));
  EXPECT_THAT(axes, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_THAT(turns, ElementsAre(1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12));
}

}  // namespace
}  // namespace phasor
