// SPDX-License-Identifier: Apache-2.0
// The number of axes, and which pairs belong to which axis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/spec/spec.h"
#include "tests/support/specs.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::Encoding;
using testing::ExpectInvalid;
using testing::PresetSpec;
using testing::Resolve;
using testing::Rotary;
using testing::With;

TEST(ResolveAxesTest, SplitsAxesEvenlyUnlessTold) {
  Spec grid = With(PresetSpec("grid-2d-concat"), &Spec::dim, 12);
  ExpectInvalid(With(grid, &Spec::dim, 10), "axes_dim[0]: 5; must be even");
  EXPECT_THAT(Resolve(grid).axes_dim, ElementsAre(6, 6));
  EXPECT_THAT(Resolve(With(grid, &Spec::axes_dim, {8, 4})).axes_dim, ElementsAre(8, 4));
  EXPECT_THAT(Resolve(With(PresetSpec("grid-2d-sum"), &Spec::dim, 12)).axes_dim,
              ElementsAre(12, 12));
  EXPECT_EQ(Resolve(With(Encoding(12), &Spec::axes_dim, {4, 4, 4})).axes, 3);
}

TEST(ResolveAxesTest, EqualSharesOfABaseStayEqualAtAnotherWidth) {
  const Spec wide = With(PresetSpec("dinov3"), &Spec::head_dim, 128);
  EXPECT_THAT(Resolve(wide).axes_dim, ElementsAre(64, 64));
  EXPECT_THAT(Resolve(PresetSpec("dinov3")).axes_dim, ElementsAre(32, 32));
  ExpectInvalid(With(PresetSpec("flux"), &Spec::head_dim, 256), "axes_dim: sums to 128");
}

// Axis 0 has every pair that the others do not take, whatever its own section says (GenLIP).
TEST(ResolveAxesTest, InterleavedSectionsNeedNotSumToThePairs) {
  Spec spec = With(Rotary(72), &Spec::axis_rule, AxisRule::kMropeInterleaved);
  spec.mrope_section = {8, 12, 12};
  EXPECT_THAT(Resolve(spec).mrope_section, ElementsAre(12, 12, 12));
  spec.mrope_section = {24, 4, 40};
  EXPECT_THAT(Resolve(spec).mrope_section, ElementsAre(20, 4, 12));
  spec.mrope_section = {16, 8, 12};
  EXPECT_THAT(Resolve(spec).mrope_section, ElementsAre(16, 8, 12));
  ExpectInvalid(With(spec, &Spec::mrope_section, {8, -1, 12}), "mrope_section[1]: -1");
  spec.axis_rule = AxisRule::kMropeChunked;
  ExpectInvalid(With(spec, &Spec::mrope_section, {8, 12, 12}),
                "mrope_section: sums to 32; must sum to 36");
}

TEST(ResolveAxesTest, RefusesAxesThatDoNotAddUp) {
  const Spec grid = With(PresetSpec("grid-2d-concat"), &Spec::dim, 12);
  ExpectInvalid(With(grid, &Spec::axes_dim, {8, 8}), "axes_dim: sums to 16; must sum to 12 (dim)");
  ExpectInvalid(With(grid, &Spec::axes_dim, {6, 6, 0}),
                "axes_dim: 3 entries; must be as many as axes (2)");
  ExpectInvalid(With(grid, &Spec::axes_dim, {14, -2}), "axes_dim[0]: 14");
  ExpectInvalid(With(grid, &Spec::axes, 5), "axes: more than 4 axes");
  ExpectInvalid(With(grid, &Spec::axes, 0), "axes: 0 axes");
  ExpectInvalid(With(Encoding(12), &Spec::axes_dim, {2, 2, 2, 2, 2, 2}),
                "axes_dim: more than 4 axes");
  ExpectInvalid(With(With(PresetSpec("grid-2d-sum"), &Spec::dim, 12), &Spec::axes_dim, {6, 6}),
                "axes_dim[0]: 6; must be 12 for grouping SUM");
  ExpectInvalid(With(With(PresetSpec("rope-3d"), &Spec::head_dim, 128), &Spec::axes, 3),
                "axes_dim: not set");
  ExpectInvalid(With(PresetSpec("flux"), &Spec::axes_dim, {16, 56, 58}), "axes_dim: sums to 130");
}

Spec Mrope(AxisRule rule, std::vector<int64_t> section) {
  Spec spec = With(Rotary(128), &Spec::axis_rule, rule);
  spec.mrope_section = std::move(section);
  return spec;
}

TEST(ResolveAxesTest, TakesSectionsThatSumToThePairs) {
  const ResolvedSpec qwen = Resolve(Mrope(AxisRule::kMropeChunked, {16, 24, 24}));
  EXPECT_EQ(qwen.axes, 3);
  EXPECT_THAT(qwen.axes_dim, ElementsAre());
  EXPECT_THAT(qwen.mrope_section, ElementsAre(16, 24, 24));
  Resolve(Mrope(AxisRule::kMropeInterleaved, {24, 20, 20}));
  Resolve(Mrope(AxisRule::kMropeAlternating, {22, 22, 20}));
  EXPECT_EQ(Resolve(Mrope(AxisRule::kMropeChunked, {16, 16, 16, 16})).axes, 4);
}

TEST(ResolveAxesTest, RefusesSectionsThatAreWrong) {
  ExpectInvalid(Mrope(AxisRule::kMropeChunked, {16, 24, 23}),
                "mrope_section: sums to 63; must sum to 64");
  ExpectInvalid(Mrope(AxisRule::kMropeChunked, {}), "mrope_section: not set");
  ExpectInvalid(Mrope(AxisRule::kMropeChunked, {-1, 33, 32}), "mrope_section[0]: -1; must be in");
  ExpectInvalid(Mrope(AxisRule::kMropeChunked, {INT64_MAX, INT64_MAX, 66}), "mrope_section[0]: 9");
  ExpectInvalid(Mrope(AxisRule::kMropeInterleaved, {32, 32}),
                "axes: 2; must be 3 for axis_rule MROPE_INTERL");
  ExpectInvalid(Mrope(AxisRule::kMropeAlternating, {20, 24, 20}),
                "mrope_section[1]: 24; must be 20");
  ExpectInvalid(With(Mrope(AxisRule::kMropeChunked, {32, 32}), &Spec::axes, 3),
                "mrope_section: 2 entries; must be as many as axes (3)");
  ExpectInvalid(With(Rotary(128), &Spec::mrope_section, {32, 32}),
                "mrope_section: has no meaning for axis_rule AXIAL");
  ExpectInvalid(With(Mrope(AxisRule::kMropeChunked, {32, 32}), &Spec::axes_dim, {64, 64}),
                "axes_dim: has no meaning for axis_rule MROPE_CHUNKED");
}

TEST(ResolveAxesTest, TakesAnAxisForEveryPair) {
  Spec list = With(With(Rotary(6), &Spec::axes, 2), &Spec::axis_rule, AxisRule::kList);
  list.axis_of_pair = {0, 1, 1};
  EXPECT_THAT(Resolve(list).axis_of_pair, ElementsAre(0, 1, 1));
  ExpectInvalid(With(list, &Spec::axis_of_pair, {0, 1}), "axis_of_pair: 2 values; must be 3");
  ExpectInvalid(With(list, &Spec::axis_of_pair, {0, 1, 2}),
                "axis_of_pair[2]: 2; must be in [0, 2)");
  ExpectInvalid(With(list, &Spec::axis_of_pair, {0, -1, 1}), "axis_of_pair[1]: -1");
  ExpectInvalid(With(Rotary(6), &Spec::axis_of_pair, {0, 0, 0}), "axis_of_pair: has no meaning");
}

TEST(ResolveAxesTest, OneAxisIsTheSameUnderEveryRule) {
  const ResolvedSpec plain = Resolve(Rotary(8));
  EXPECT_EQ(Resolve(Mrope(AxisRule::kMropeChunked, {64})), Resolve(Rotary(128)));
  EXPECT_EQ(Resolve(With(Rotary(8), &Spec::axis_rule, AxisRule::kDense)), plain);
  EXPECT_EQ(Resolve(With(Rotary(8), &Spec::axis_rule, AxisRule::kFrequencyMajor)), plain);
  EXPECT_EQ(Resolve(With(Rotary(8), &Spec::axis_rule, AxisRule::kAxial)), plain);
}

TEST(ResolveAxesTest, PairsInBlocksNeedBlocks) {
  Spec spec = With(Rotary(16), &Spec::pairing, Pairing::kBlockHalfSplit);
  EXPECT_EQ(Resolve(spec), Resolve(Rotary(16))) << "one block is the head";
  spec.axes_dim = {12, 4};
  EXPECT_EQ(Resolve(spec).pairing, Pairing::kBlockHalfSplit);
  EXPECT_EQ(Resolve(spec).pairing_out, Pairing::kBlockHalfSplit);
  spec.axes_dim.clear();
  spec.axis_rule = AxisRule::kMropeChunked;
  spec.mrope_section = {4, 2, 2};
  ExpectInvalid(spec, "pairing: BLOCK_HALF_SPLIT, but the axes of axis_rule MROPE_CHUNKED");
  spec.pairing = Pairing::kInterleaved;
  spec.pairing_out = Pairing::kBlockHalfSplit;
  ExpectInvalid(spec, "pairing_out: BLOCK_HALF_SPLIT");
}

TEST(ResolveAxesTest, FrequencyMajorTakesWholeLadders) {
  Spec spec = With(With(Rotary(12), &Spec::axes, 3), &Spec::axis_rule, AxisRule::kFrequencyMajor);
  EXPECT_EQ(Resolve(spec).axis_rule, AxisRule::kFrequencyMajor);
  ExpectInvalid(With(spec, &Spec::head_dim, 14),
                "rotary_dim: 14; must be a multiple of 6 for FREQUENCY_MAJOR over 3 axes");
}

TEST(ResolveAxesTest, EncodingsTakeRulesToo) {
  Spec spec = With(With(Encoding(12), &Spec::axes, 3), &Spec::axis_rule, AxisRule::kFrequencyMajor);
  EXPECT_EQ(Resolve(spec).axis_rule, AxisRule::kFrequencyMajor);
  ExpectInvalid(With(spec, &Spec::grouping, AxisGrouping::kSum),
                "grouping: SUM; must be AXIS_MAJOR for axis_rule FREQ");
  ExpectInvalid(With(spec, &Spec::preset, "transformer-literal"),
                "axis_rule: FREQUENCY_MAJOR; PER_ELEMENT takes SINGLE or AXIAL");
}

}  // namespace
}  // namespace phasor
