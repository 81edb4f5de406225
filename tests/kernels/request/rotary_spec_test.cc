// SPDX-License-Identifier: Apache-2.0
// The width of a spec, and which two specs keys can move between.
#include "kernels/request/rotary_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::StatusIs;

Plan Rotating(int64_t begin, int64_t dim, int64_t heads = 1, double amplitude = 1) {
  Plan plan;
  plan.spec.rotary_begin = begin;
  plan.spec.rotary_dim = dim;
  plan.heads = heads;
  plan.amplitude = amplitude;
  return plan;
}

TEST(RotarySpecTest, TensorsGiveTheWidthThatNothingElseSets) {
  Spec spec = testing::PresetSpec("rope-half-split");
  EXPECT_EQ(ResolveRotarySpec(spec, 96, "spec")->head_dim, 96);
  spec.head_dim = 64;
  EXPECT_EQ(ResolveRotarySpec(spec, 96, "spec")->head_dim, 64);
  EXPECT_THAT(ResolveRotarySpec(testing::PresetSpec("transformer"), 96, "spec"),
              StatusIs(kInvalid, HasSubstr("spec.kind: ENCODING")));
}

TEST(RotarySpecTest, SpecsMustRotateTheSameLanesAndHeads) {
  const Plan to = Rotating(0, 64);
  EXPECT_THAT(CheckDelta(Rotating(0, 64, 1, 1.5), to, "from"), IsOk());
  EXPECT_THAT(CheckDelta(Rotating(0, 32), to, "from"),
              StatusIs(kInvalid, HasSubstr("from: rotates lanes [0, 32); must be those of spec")));
  EXPECT_THAT(CheckDelta(Rotating(64, 64), to, "from"), StatusIs(kInvalid, HasSubstr("[64, 128)")));
  EXPECT_THAT(CheckDelta(Rotating(0, 64, 4), to, "from"),
              StatusIs(kInvalid, HasSubstr("from.frequency_heads: 4; must be spec's (1)")));
}

TEST(RotarySpecTest, PairsInBlocksMoveWithinTheSameBlocks) {
  Plan from = Rotating(0, 64), to = Rotating(0, 64);
  from.spec.pairing_out = to.spec.pairing_out = Pairing::kBlockHalfSplit;
  from.spec.axes_dim = {32, 32};
  to.spec.axes_dim = {16, 48};
  EXPECT_THAT(
      CheckDelta(from, to, "from"),
      StatusIs(kInvalid, HasSubstr("from.axes_dim: differs from spec's; must be the same")));
  to.spec.axes_dim = {32, 32};
  EXPECT_THAT(CheckDelta(from, to, "from"), IsOk());
  from.spec.pairing_out = Pairing::kInterleaved;
  from.spec.axes_dim = {64};
  EXPECT_THAT(CheckDelta(from, to, "from"), IsOk());
}

TEST(RotarySpecTest, AnAmplitudeOfZeroCannotBeUndone) {
  EXPECT_THAT(CheckDelta(Rotating(0, 64, 1, 0), Rotating(0, 64), "from"),
              StatusIs(kInvalid, HasSubstr("from.attention_factor: 0 cannot be undone")));
}

}  // namespace
}  // namespace phasor
