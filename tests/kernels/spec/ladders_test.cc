// SPDX-License-Identifier: Apache-2.0
// Which pairs belong to which axis and ladder, by upstream's own definitions.
#include "kernels/spec/ladders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/specs.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::Resolve;
using testing::With;

Spec Rotary(int64_t head_dim, int axes, AxisRule rule, std::vector<int64_t> section = {}) {
  Spec spec = testing::Rotary(head_dim);
  spec.axes = axes;
  spec.axis_rule = rule;
  spec.mrope_section = std::move(section);
  return spec;
}

TEST(AxesOfTest, ChunksFollowEachOther) {
  EXPECT_THAT(AxesOf(Resolve(Rotary(12, 3, AxisRule::kMropeChunked, {1, 3, 2}))),
              ElementsAre(0, 1, 1, 1, 2, 2));
  EXPECT_THAT(AxesOf(Resolve(Rotary(8, 3, AxisRule::kMropeChunked, {0, 4, 0}))),
              ElementsAre(1, 1, 1, 1));
}

TEST(AxesOfTest, InterleavedSectionsFallBackToTheFirstAxis) {
  // transformers' apply_interleaved_mrope: freqs[1:3*s_h:3] = h, freqs[2:3*s_w:3] = w, over t.
  const std::vector<int64_t> section = {24, 20, 20};
  std::vector<int> upstream(64, 0);
  for (int64_t axis = 1; axis < 3; ++axis) {
    for (int64_t j = axis; j < 3 * section[axis]; j += 3) upstream[j] = static_cast<int>(axis);
  }
  const auto axes = AxesOf(Resolve(Rotary(128, 3, AxisRule::kMropeInterleaved, section)));
  EXPECT_EQ(std::vector<int>(axes.begin(), axes.end()), upstream);
  EXPECT_EQ(axes[61], 0);
  EXPECT_EQ(axes[62], 0);
}

TEST(AxesOfTest, AlternatingSectionsEndInTime) {
  EXPECT_THAT(AxesOf(Resolve(Rotary(14, 3, AxisRule::kMropeAlternating, {2, 2, 3}))),
              ElementsAre(1, 2, 1, 2, 0, 0, 0));
}

TEST(AxesOfTest, FrequencyMajorTakesAxesInTurn) {
  EXPECT_THAT(AxesOf(Resolve(Rotary(12, 3, AxisRule::kFrequencyMajor))),
              ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(AxesOfTest, BlocksAreWhole) {
  Spec spec = Rotary(12, 2, AxisRule::kAxial);
  spec.axes_dim = {4, 8};
  EXPECT_THAT(AxesOf(Resolve(spec)), ElementsAre(0, 0, 1, 1, 1, 1));
}

TEST(AxesOfTest, DenseHasALayerPerAxis) {
  EXPECT_THAT(AxesOf(Resolve(Rotary(4, 2, AxisRule::kDense))), ElementsAre(0, 0, 1, 1));
}

TEST(AxesOfTest, EveryHeadHasTheSame) {
  Spec spec = Rotary(4, 2, AxisRule::kMropeChunked, {1, 1});
  spec.family = FrequencyFamily::kExplicit;
  spec.inv_freq = {1, 2, 3, 4};
  spec.frequency_heads = 2;
  EXPECT_THAT(AxesOf(Resolve(spec)), ElementsAre(0, 1, 0, 1));
}

TEST(LaddersOfTest, FollowBlocksAndAxes) {
  Spec spec = Rotary(12, 2, AxisRule::kAxial);
  spec.axes_dim = {4, 8};
  EXPECT_THAT(LaddersOf(Resolve(spec)), ElementsAre(Ladder{0, 2, 2}, Ladder{1, 4, 4}));
  EXPECT_THAT(LaddersOf(Resolve(Rotary(12, 3, AxisRule::kFrequencyMajor))),
              ElementsAre(Ladder{0, 2, 2}, Ladder{1, 2, 2}, Ladder{2, 2, 2}));
  EXPECT_THAT(LaddersOf(Resolve(Rotary(12, 2, AxisRule::kDense))),
              ElementsAre(Ladder{0, 6, 6}, Ladder{1, 6, 6}));
  EXPECT_THAT(LaddersOf(Resolve(Rotary(8, 2, AxisRule::kMropeChunked, {2, 2}))),
              ElementsAre(Ladder{0, 4, 4}));
}

TEST(LaddersOfTest, CountTermsOfEncodings) {
  const Spec plain = testing::Encoding(8);
  EXPECT_THAT(LaddersOf(Resolve(plain)), ElementsAre(Ladder{0, 4, 4}));
  EXPECT_THAT(LaddersOf(Resolve(With(plain, &Spec::order, TrigOrder::kCosOnly))),
              ElementsAre(Ladder{0, 8, 8}));
  EXPECT_THAT(LaddersOf(Resolve(With(plain, &Spec::preset, "transformer-literal"))),
              ElementsAre(Ladder{0, 8, 4}));
  // 10000^(2j / 7), j = 0..3: the denominator is half of an odd width.
  EXPECT_THAT(LaddersOf(Resolve(With(testing::Encoding(7), &Spec::odd_dim, OddDim::kSplit))),
              ElementsAre(Ladder{0, 4, 3.5}));
}

}  // namespace
}  // namespace phasor
