// SPDX-License-Identifier: Apache-2.0
// Padding, odd widths, and the part of a head that rotates.
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

using testing::kNan;

TEST(ResolveWidthsTest, PadsOddWidthsOnlyWhenAsked) {
  ExpectInvalid(Encoding(7), "dim: 7 is odd");
  const ResolvedSpec padded = Resolve(With(Encoding(7), &Spec::pad_back, 1));
  EXPECT_EQ(padded.pad_back, 1);
  EXPECT_THAT(padded.axes_dim, ElementsAre(6));
  EXPECT_EQ(Resolve(With(PresetSpec("timestep-cos-sin"), &Spec::dim, 7)).pad_back, 1);
  EXPECT_EQ(Resolve(With(PresetSpec("timestep-cos-sin"), &Spec::dim, 8)).pad_back, 0);
  ExpectInvalid(With(Encoding(8), &Spec::pad_back, 9), "pad_back: 9 is out of range");
  ExpectInvalid(With(Encoding(8), &Spec::pad_back, -1), "pad_back: -1 is out of range");
  ExpectInvalid(With(Encoding(8), &Spec::pad_front, -1), "pad_front: -1 is out of range");
  ExpectInvalid(With(Encoding(1), &Spec::pad_back, 1), "dim: 1 leaves 0 columns");
  ExpectInvalid(With(Encoding(8), &Spec::pad_front, 8), "dim: 8 leaves 0 columns");
  ExpectInvalid(With(Encoding(8), &Spec::pad_front, 1), "dim: 8 leaves 7 columns");
}

TEST(ResolveWidthsTest, RefusesWidthsOutOfRange) {
  ExpectInvalid(Encoding(0), "dim: 0 is out of range; must be in [1, 65536]");
  ExpectInvalid(Encoding(-4), "dim: -4");
  ExpectInvalid(Encoding(65538), "dim: 65538");
  EXPECT_EQ(Resolve(Encoding(65536)).dim, 65536);
  ExpectInvalid(Rotary(1), "head_dim: 1 is out of range");
  ExpectInvalid(Rotary(65537), "head_dim: 65537 is out of range");
  ExpectInvalid(Rotary(63), "rotary_dim: 63 is odd; must be even");
}

TEST(ResolveWidthsTest, PlacesThePartThatRotatesInsideTheHead) {
  Spec spec = With(Rotary(192), &Spec::rotary_begin, 128);
  ExpectInvalid(spec, "rotary_dim: 192 is out of range; must be in [2, 64]");
  spec.rotary_dim = 64;
  EXPECT_EQ(Resolve(spec).rotary_begin, 128);
  ExpectInvalid(With(spec, &Spec::rotary_dim, 63), "rotary_dim: 63 is odd");
  ExpectInvalid(With(spec, &Spec::rotary_dim, 66), "rotary_dim: 66 is out of range");
  ExpectInvalid(With(spec, &Spec::rotary_dim, 0), "rotary_dim: 0 is out of range");
  ExpectInvalid(With(spec, &Spec::rotary_begin, -2), "rotary_begin: -2 is out of range");
  ExpectInvalid(With(spec, &Spec::rotary_begin, 191), "rotary_begin: 191 is out of range");
  EXPECT_EQ(Resolve(With(With(Rotary(65), &Spec::rotary_dim, 64), &Spec::rotary_begin, 1)).head_dim,
            65);
}

TEST(ResolveWidthsTest, TakesAPartialRotaryFactorInsteadOfRotaryDim) {
  EXPECT_EQ(Resolve(With(PresetSpec("gpt-neox"), &Spec::head_dim, 96)).rotary_dim, 24);
  EXPECT_EQ(Resolve(With(With(PresetSpec("gpt-neox"), &Spec::head_dim, 96), &Spec::rotary_dim, 48))
                .rotary_dim,
            48);
  EXPECT_EQ(Resolve(With(PresetSpec("gpt-j"), &Spec::partial_rotary_factor, 0.5)).rotary_dim, 128);
  ExpectInvalid(With(Rotary(10), &Spec::partial_rotary_factor, 0.5),
                "partial_rotary_factor: gives rotary_dim 5 is odd");
  for (const double bad : {0.0, -0.5, 1.01, kNan}) {
    ExpectInvalid(With(Rotary(64), &Spec::partial_rotary_factor, bad), "partial_rotary_factor: ");
  }
  ExpectInvalid(With(With(Rotary(64), &Spec::rotary_dim, 32), &Spec::partial_rotary_factor, 0.5),
                "partial_rotary_factor: set beside rotary_dim");
}

TEST(ResolveWidthsTest, PadsInFrontAndBehind) {
  const ResolvedSpec both =
      Resolve(With(With(Encoding(12), &Spec::pad_front, 2), &Spec::pad_back, 4));
  EXPECT_THAT(both.axes_dim, ElementsAre(6));
  // pad_back is one less if the content would be odd.
  const ResolvedSpec odd =
      Resolve(With(With(Encoding(12), &Spec::pad_front, 3), &Spec::pad_back, 2));
  EXPECT_THAT(odd.axes_dim, ElementsAre(8));
  EXPECT_EQ(odd.pad_back, 1);
}

TEST(ResolveWidthsTest, SplitsOddWidthsWhenAsked) {
  const ResolvedSpec split = Resolve(With(Encoding(7), &Spec::odd_dim, OddDim::kSplit));
  EXPECT_EQ(split.odd_dim, OddDim::kSplit);
  EXPECT_THAT(split.axes_dim, ElementsAre(7));
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::odd_dim, OddDim::kSplit)), Resolve(Encoding(8)));
  Spec grid = With(PresetSpec("grid-2d-concat"), &Spec::dim, 13);
  grid.odd_dim = OddDim::kSplit;
  grid.axes_dim = {6, 7};
  ExpectInvalid(grid, "odd_dim: SPLIT; must be PAD for several axes side by side");
}

TEST(ResolveWidthsTest, GivesCosinesAloneAnyWidth) {
  Spec spec = With(Encoding(7), &Spec::order, TrigOrder::kCosOnly);
  EXPECT_THAT(Resolve(spec).axes_dim, ElementsAre(7));
  spec.pad_back = 1;
  EXPECT_THAT(Resolve(spec).axes_dim, ElementsAre(6));
  spec.arrangement = Arrangement::kInterleaved;
  EXPECT_EQ(Resolve(spec).arrangement, Arrangement::kConcatenated);
}

TEST(ResolveWidthsTest, RefusesABiasThatIsNotFinite) {
  ExpectInvalid(With(Encoding(8), &Spec::cos_bias, HUGE_VAL), "cos_bias: inf");
}

TEST(ResolveWidthsTest, EveryElementByItselfMayBeOddlyMany) {
  const ResolvedSpec odd = Resolve(With(PresetSpec("transformer-literal"), &Spec::dim, 7));
  EXPECT_EQ(odd.dim, 7);
  EXPECT_THAT(odd.axes_dim, ElementsAre(7));
  EXPECT_EQ(odd.pad_back, 0);
}

}  // namespace
}  // namespace phasor
