// SPDX-License-Identifier: Apache-2.0
// Merging of specs, and the spec of a resolved spec.
#include "kernels/spec/spec.h"

#include <gtest/gtest.h>

#include "kernels/spec/presets.h"
#include "tests/support/complete_preset.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::IsOk;

TEST(MergeSpecTest, ReplacesWhatIsSetAndKeepsTheRest) {
  const Spec base = {.preset = "a", .dim = 4, .axes_dim = {2, 2}, .rope_theta = 10.0};
  const Spec merged = MergeSpec(base, {.axes_dim = {4}, .rope_theta = 20.0});
  EXPECT_EQ(merged, (Spec{.preset = "a", .dim = 4, .axes_dim = {4}, .rope_theta = 20.0}));
  EXPECT_EQ(MergeSpec(base, {}), base);
  EXPECT_EQ(MergeSpec({}, base), base);
}

TEST(MergeSpecTest, ReplacesABaseOfAnyKind) {
  const Spec merged = MergeSpec({.preset = "a", .dim = 4}, {.encoder = "b"});
  EXPECT_EQ(merged, (Spec{.encoder = "b", .dim = 4}));
}

TEST(MergeSpecTest, LetsOneWayToSayTheRotaryWidthReplaceTheOther) {
  Spec base;
  base.rotary_dim = 64;
  Spec with;
  with.partial_rotary_factor = 0.5;
  EXPECT_EQ(MergeSpec(base, with), with);
  EXPECT_EQ(MergeSpec(with, base), base);
}

TEST(MergeSpecTest, LetsOneWayToSayTheBaseReplaceTheOther) {
  const Spec base = {.rope_theta = 10.0};
  const Spec with = {.axes_theta = {1, 2}};
  EXPECT_EQ(MergeSpec(base, with), with);
  EXPECT_EQ(MergeSpec(with, base), base);
}

TEST(ToSpecTest, ResolvesItsOwnAnswerToItself) {
  for (const phasor::Preset& preset : Presets()) {
    const auto resolved = ResolveSpec(testing::Complete(preset));
    ASSERT_THAT(resolved, IsOk()) << preset.name;
    const Spec full = ToSpec(*resolved);
    EXPECT_TRUE(full.preset.empty());
    const auto again = ResolveSpec(full);
    ASSERT_THAT(again, IsOk()) << preset.name;
    EXPECT_EQ(*again, *resolved) << preset.name;
    EXPECT_EQ(ToSpec(*again), full) << preset.name;
  }
}

TEST(ToSpecTest, ResolvesToTheSameForEveryField) {
  for (const Spec& spec : testing::SpecsOfEveryField()) {
    const ResolvedSpec resolved = testing::Resolve(spec);
    const Spec full = ToSpec(resolved);
    const ResolvedSpec again = testing::Resolve(full);
    EXPECT_EQ(again, resolved);
    EXPECT_EQ(again.Hash(), resolved.Hash());
    EXPECT_EQ(ToSpec(again), full);
  }
}

}  // namespace
}  // namespace phasor
