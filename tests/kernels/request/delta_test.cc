// SPDX-License-Identifier: Apache-2.0
// Which two specs keys can move between.
#include "kernels/request/delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/plans.h"
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

TEST(DeltaTest, SpecsMustRotateTheSameLanesAndHeads) {
  const Plan to = Rotating(0, 64);
  EXPECT_THAT(CheckDelta(Rotating(0, 64, 1, 1.5), to, "from"), IsOk());
  EXPECT_THAT(CheckDelta(Rotating(0, 32), to, "from"),
              StatusIs(kInvalid, HasSubstr("from: rotates lanes [0, 32); must be those of spec")));
  EXPECT_THAT(CheckDelta(Rotating(64, 64), to, "from"), StatusIs(kInvalid, HasSubstr("[64, 128)")));
  EXPECT_THAT(CheckDelta(Rotating(0, 64, 4), to, "from"),
              StatusIs(kInvalid, HasSubstr("from.frequency_heads: 4; must be spec's (1)")));
}

TEST(DeltaTest, AnAmplitudeOfZeroCannotBeUndone) {
  EXPECT_THAT(CheckDelta(Rotating(0, 64, 1, 0), Rotating(0, 64), "from"),
              StatusIs(kInvalid, HasSubstr("from.attention_factor: 0 cannot be undone")));
}

}  // namespace
}  // namespace phasor
