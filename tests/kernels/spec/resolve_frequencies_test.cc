// SPDX-License-Identifier: Apache-2.0
// The fields of each family, and lists with one value per pair or axis.
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

TEST(ResolveFrequenciesTest, RefusesADenominatorOfZero) {
  ExpectInvalid(With(Encoding(8), &Spec::downscale_freq_shift, 4.0),
                "downscale_freq_shift: 4 is the number of pairs");
  EXPECT_EQ(Resolve(With(PresetSpec("ddpm-timestep"), &Spec::dim, 2)).downscale_freq_shift, 1);
}

Spec Explicit(int64_t head_dim, std::vector<double> inv_freq) {
  Spec spec = With(Rotary(head_dim), &Spec::family, FrequencyFamily::kExplicit);
  spec.inv_freq = std::move(inv_freq);
  return spec;
}

Spec Range(FrequencyFamily family, double min, double max) {
  Spec spec = With(Rotary(8), &Spec::family, family);
  spec.min_freq = min;
  spec.max_freq = max;
  return spec;
}

TEST(ResolveFrequenciesTest, TakesAListOfAsManyAsThereArePairs) {
  EXPECT_THAT(Resolve(Explicit(6, {1, 2, -0.0})).inv_freq, ElementsAre(1, 2, 0));
  ExpectInvalid(Explicit(6, {}), "inv_freq: not set");
  ExpectInvalid(Explicit(6, {1, 2}), "inv_freq: 2 values; must be 3");
  ExpectInvalid(Explicit(6, {1, HUGE_VAL, 3}), "inv_freq[1]: inf; must be finite");
  ExpectInvalid(With(Explicit(6, {1, 2, 3}), &Spec::rope_theta, 1e4), "rope_theta: has no meaning");
  ExpectInvalid(With(Explicit(6, {1, 2, 3}), &Spec::live_pairs, 1), "live_pairs: has no meaning");
}

TEST(ResolveFrequenciesTest, CountsHeadsAndLayersInTheList) {
  Spec spec = With(Explicit(4, {1, 2, 3, 4, 5, 6}), &Spec::frequency_heads, 3);
  EXPECT_EQ(Resolve(spec).frequency_heads, 3);
  spec.axes = 2;
  spec.axis_rule = AxisRule::kDense;
  ExpectInvalid(spec, "inv_freq: 6 values; must be 12");
  spec.inv_freq.resize(12);
  spec.phase.assign(6, 0.5);
  EXPECT_EQ(Resolve(spec).phase.size(), 6u);
  ExpectInvalid(With(spec, &Spec::frequency_heads, 0), "frequency_heads: 0 is out of range");
  ExpectInvalid(With(spec, &Spec::frequency_heads, 65537), "frequency_heads: 65537 is out");
}

TEST(ResolveFrequenciesTest, TakesRanges) {
  EXPECT_EQ(Resolve(Range(FrequencyFamily::kLinear, -1, 0)).min_freq, -1);
  EXPECT_EQ(Resolve(Range(FrequencyFamily::kLogRange, 0.5, 2)).max_freq, 2);
  ExpectInvalid(Range(FrequencyFamily::kLinear, kNan, 0), "min_freq: nan; must be finite");
  ExpectInvalid(Range(FrequencyFamily::kLogRange, 0, 1), "min_freq: 0; must be finite and > 0");
  ExpectInvalid(Range(FrequencyFamily::kLogRange, 1, -1), "max_freq: -1");
  ExpectInvalid(With(Rotary(8), &Spec::family, FrequencyFamily::kLinear), "min_freq: not set");
  ExpectInvalid(With(Range(FrequencyFamily::kLogRange, 1, 2), &Spec::downscale_freq_shift, 4.0),
                "downscale_freq_shift: 4 is the number of pairs");
}

TEST(ResolveFrequenciesTest, PhasesThatAreAllZeroAreNone) {
  EXPECT_EQ(Resolve(With(Rotary(6), &Spec::phase, {0, -0.0, 0})), Resolve(Rotary(6)));
  ExpectInvalid(With(Rotary(6), &Spec::phase, {1}), "phase: 1 values; must be 3");
  ExpectInvalid(With(Rotary(6), &Spec::phase, {0, 0, kNan}), "phase[2]: nan");
}

TEST(ResolveFrequenciesTest, LivePairsAreAtMostAll) {
  EXPECT_EQ(Resolve(With(Rotary(8), &Spec::live_pairs, 4)), Resolve(Rotary(8)));
  EXPECT_EQ(Resolve(With(Rotary(8), &Spec::live_pairs, 0)).live_pairs, 0);
  ExpectInvalid(With(Rotary(8), &Spec::live_pairs, 5), "live_pairs: 5 is out of range");
  ExpectInvalid(With(Rotary(8), &Spec::live_pairs, -1), "live_pairs: -1 is out of range");
}

TEST(ResolveFrequenciesTest, AxesMayHaveBasesOfTheirOwn) {
  const Spec grid = With(PresetSpec("rope-2d"), &Spec::head_dim, 8);
  EXPECT_THAT(Resolve(With(grid, &Spec::axes_theta, {10, 20})).axes_theta, ElementsAre(10, 20));
  EXPECT_EQ(Resolve(With(grid, &Spec::axes_theta, {500, 500})),
            Resolve(With(grid, &Spec::rope_theta, 500.0)));
  ExpectInvalid(With(grid, &Spec::axes_theta, {10}), "axes_theta: 1 values; must be 2");
  ExpectInvalid(With(grid, &Spec::axes_theta, {10, 0}), "axes_theta[1]: 0; must be finite and > 0");
  ExpectInvalid(With(With(grid, &Spec::axes_theta, {1, 2}), &Spec::rope_theta, 1e4),
                "axes_theta: set beside rope_theta");
  Spec shared = With(With(Rotary(8), &Spec::axis_rule, AxisRule::kMropeChunked),
                     &Spec::mrope_section, {2, 2});
  ExpectInvalid(With(shared, &Spec::axes_theta, {10, 20}), "axes_theta: the axes share one ladder");
}

TEST(ResolveFrequenciesTest, AxesMayHaveScalesOfTheirOwn) {
  const Spec grid = With(PresetSpec("rope-2d"), &Spec::head_dim, 8);
  EXPECT_THAT(Resolve(With(grid, &Spec::axes_position_scale, {1, 0.5})).axes_position_scale,
              ElementsAre(1, 0.5));
  EXPECT_EQ(Resolve(With(grid, &Spec::axes_position_scale, {1, 1})), Resolve(grid));
  EXPECT_EQ(Resolve(With(grid, &Spec::axes_position_scale, {3, 3})),
            Resolve(With(grid, &Spec::position_scale, 3.0)));
  ExpectInvalid(With(grid, &Spec::axes_position_scale, {1, kNan}), "axes_position_scale[1]: nan");
}

TEST(ResolveFrequenciesTest, TheUnitOfPeriodsIsNone) {
  Spec flow = testing::Flow(8);
  EXPECT_EQ(Resolve(With(flow, &Spec::frequency_unit, FrequencyUnit::kTurns)), Resolve(flow));
  flow.phase = {0, 0, 0, 0.5};
  EXPECT_EQ(Resolve(With(flow, &Spec::frequency_unit, FrequencyUnit::kTurns)).frequency_unit,
            FrequencyUnit::kTurns);
}

}  // namespace
}  // namespace phasor
