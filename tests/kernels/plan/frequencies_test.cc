// SPDX-License-Identifier: Apache-2.0
// Frequencies, compared with their formulas in 320-bit arithmetic, one element at a time.
#include "kernels/plan/frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::Integer;
using testing::Real;
using testing::RoundToFixed;
using testing::ToFixed;

constexpr auto kPeriods = FrequencyFamily::kPeriods;
constexpr auto kExclusive = FrequencyFamily::kPeriodsExclusive;

void ExpectRounded(const Frequency& f, const Real& turns, const std::string& what) {
  EXPECT_EQ(ToFixed(f.whole, f.fraction), RoundToFixed(turns)) << what;
}

// A rotary spec with one ladder, made by hand, because this does not test ResolveSpec.
ResolvedSpec LadderSpec(FrequencyFamily family, int64_t pairs, double scale) {
  ResolvedSpec spec;
  spec.kind = SpecKind::kRotary;
  spec.family = family;
  spec.head_dim = spec.rotary_dim = 2 * pairs;
  spec.axes_dim = {2 * pairs};
  spec.position_scale = scale;
  return spec;
}

using Frequencies = std::optional<std::vector<Frequency>>;

Frequencies GeometricFrequencies(double base, double shift, int64_t pairs, double scale) {
  ResolvedSpec spec = LadderSpec(FrequencyFamily::kGeometric, pairs, scale);
  spec.rope_theta = base;
  spec.downscale_freq_shift = shift;
  return FrequenciesOf(spec);
}

Frequencies PeriodFrequencies(FrequencyFamily family, double min, double max, int64_t pairs,
                              double scale) {
  ResolvedSpec spec = LadderSpec(family, pairs, scale);
  spec.min_period = min;
  spec.max_period = max;
  return FrequenciesOf(spec);
}

TEST(GeometricFrequenciesTest, AreCorrectlyRoundedForTheBasesInUse) {
  for (const double base : {10000.0, 500000.0, 1e6, 5e6, 256.0, 100.0, 2000.0}) {
    for (const int64_t pairs : {1, 2, 3, 22, 64, 129}) {
      const auto frequencies = GeometricFrequencies(base, 0, pairs, 1);
      ASSERT_TRUE(frequencies.has_value());
      ASSERT_EQ(static_cast<int64_t>(frequencies->size()), pairs);
      for (int64_t j = 0; j < pairs; ++j) {
        ExpectRounded((*frequencies)[j], testing::GeometricTurns(1, base, Real(j) / pairs),
                      "base " + std::to_string(base) + " pair " + std::to_string(j));
      }
    }
  }
}

TEST(GeometricFrequenciesTest, AreCorrectlyRoundedAtTheEndOfTheLongestLadder) {
  constexpr int64_t kPairs = 32768;
  const auto frequencies = GeometricFrequencies(10000, 0, kPairs, 1);
  ASSERT_TRUE(frequencies.has_value());
  for (const int64_t j : {int64_t{1}, kPairs / 2, kPairs - 2, kPairs - 1}) {
    ExpectRounded((*frequencies)[j], testing::GeometricTurns(1, 10000, Real(j) / kPairs),
                  std::to_string(j));
  }
}

TEST(GeometricFrequenciesTest, FollowAFractionalDenominatorAndASmallBase) {
  for (const double shift : {-55.0, 0.75, 7.99, 13.0}) {
    for (const double base : {0.5, 1.0, 1.0000001, 3.0}) {
      const auto frequencies = GeometricFrequencies(base, shift, 8, 1);
      if (!frequencies.has_value()) continue;
      for (int64_t j = 0; j < 8; ++j) {
        ExpectRounded(
            (*frequencies)[j], testing::GeometricTurns(1, base, Real(j) / (8 - Real(shift))),
            std::to_string(base) + "^-" + std::to_string(j) + ", shift " + std::to_string(shift));
      }
    }
  }
}

TEST(GeometricFrequenciesTest, FoldAScaleOfEitherSignInBeforeRounding) {
  for (const double scale : {1000.0, -1000.0, 0.125, -1.0 / 3, 1e15, -1e-18}) {
    const auto frequencies = GeometricFrequencies(10000, 0, 16, scale);
    ASSERT_TRUE(frequencies.has_value());
    for (int64_t j = 0; j < 16; ++j) {
      ExpectRounded((*frequencies)[j], testing::GeometricTurns(Real(scale), 10000, Real(j) / 16),
                    std::to_string(scale));
    }
  }
}

TEST(GeometricFrequenciesTest, VanishInsteadOfUnderflowing) {
  const auto steep = GeometricFrequencies(1.7e308, 3 - 0x1p-50, 3, 1);
  ASSERT_TRUE(steep.has_value());
  EXPECT_EQ((*steep)[1], Frequency{});
  EXPECT_EQ((*steep)[2], Frequency{});
  const auto faint = GeometricFrequencies(10000, 0, 4, 5e-324);
  ASSERT_TRUE(faint.has_value());
  EXPECT_EQ((*faint)[0], Frequency{});
  const auto none = GeometricFrequencies(10000, 0, 4, 0);
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ((*none)[0], Frequency{});
}

TEST(GeometricFrequenciesTest, RefuseTwoToThe63TurnsAndMore) {
  const double limit = std::ldexp(2 * std::numbers::pi, 63);
  EXPECT_FALSE(GeometricFrequencies(10000, 0, 4, limit * 1.0000001).has_value());
  EXPECT_FALSE(GeometricFrequencies(10000, 0, 4, -limit * 1.0000001).has_value());
  EXPECT_TRUE(GeometricFrequencies(10000, 0, 4, limit * 0.9999999).has_value());
  EXPECT_FALSE(GeometricFrequencies(1e-300, 1, 2, 1).has_value());
  EXPECT_FALSE(GeometricFrequencies(5e-324, 2 - 0x1p-51, 2, 1).has_value());
  EXPECT_FALSE(GeometricFrequencies(10000, 0, 4, 1.7e308).has_value());
}

TEST(PeriodFrequenciesTest, AreCorrectlyRoundedForFlowMatching) {
  for (const int64_t pairs : {1, 2, 4, 512}) {
    const double denominator = pairs == 1 ? 1 : static_cast<double>(pairs - 1);
    const auto frequencies = PeriodFrequencies(kPeriods, 4e-3, 4.0, pairs, 1);
    ASSERT_TRUE(frequencies.has_value());
    EXPECT_NEAR((*frequencies)[0].whole, 250, 1);
    for (int64_t j = 0; j < pairs; ++j) {
      ExpectRounded((*frequencies)[j],
                    testing::PeriodTurns(1, 4e-3, 4.0, Real(j) / Real(denominator)),
                    std::to_string(j));
    }
  }
}

TEST(PeriodFrequenciesTest, AreExactWhereTheValueIs) {
  const auto frequencies = PeriodFrequencies(kPeriods, 0.25, 64.0, 5, -1);
  ASSERT_TRUE(frequencies.has_value());
  EXPECT_EQ((*frequencies)[0], (Frequency{-4, 0}));
  EXPECT_EQ((*frequencies)[1], (Frequency{-1, 0}));
  EXPECT_EQ((*frequencies)[2], (Frequency{-1, uint64_t{3} << 62}));
  EXPECT_EQ((*frequencies)[4], (Frequency{-1, ~uint64_t{0} << 58}));
}

TEST(PeriodFrequenciesTest, RoundTiesToEven) {
  const auto unit = [](double units) {
    return PeriodFrequencies(kPeriods, 1, 1, 1, std::ldexp(units, -64))->front().fraction;
  };
  EXPECT_EQ(unit(0.5), 0u);
  EXPECT_EQ(unit(1.5), 2u);
  EXPECT_EQ(unit(2.5), 2u);
  EXPECT_EQ(unit(0.75), 1u);
  EXPECT_EQ(unit(0.25), 0u);
  EXPECT_EQ(unit(-0.5), 0u);
  EXPECT_EQ(unit(-1.5), ~uint64_t{0} - 1);
  // A tie at 2^-65 turns, which the power reaches only up to its own rounding.
  const auto ladder = PeriodFrequencies(kExclusive, 1, std::ldexp(1.0, 130), 2, 1);
  EXPECT_EQ((*ladder)[1], Frequency{});
  const auto three = PeriodFrequencies(kExclusive, 1, std::ldexp(1.0, 130), 2, 3);
  EXPECT_EQ((*three)[1], (Frequency{0, 2}));
}

TEST(PeriodFrequenciesTest, RefuseTwoToThe63TurnsAndMore) {
  EXPECT_FALSE(PeriodFrequencies(kPeriods, 0x1p-63, 1, 1, 1).has_value());
  EXPECT_TRUE(PeriodFrequencies(kPeriods, 0x1.0000000000001p-63, 1, 1, 1).has_value());
  EXPECT_FALSE(PeriodFrequencies(kPeriods, 1, 0x1p-63, 2, 1).has_value());
}

TEST(FrequenciesOfTest, UnitsMakeMultiplesOfPiExact) {
  ResolvedSpec spec = LadderSpec(FrequencyFamily::kExplicit, 2, 1);
  spec.inv_freq = {0.25, -0.5};  // pi / 2 and -pi radians
  spec.frequency_unit = FrequencyUnit::kTurns;
  EXPECT_EQ(*FrequenciesOf(spec),
            (std::vector<Frequency>{{0, uint64_t{1} << 62}, {-1, uint64_t{1} << 63}}));
  spec.frequency_unit = FrequencyUnit::kRadians;
  ExpectRounded((*FrequenciesOf(spec))[1], Real(-0.5) / testing::TwoPi(), "radians");
  ResolvedSpec geometric = LadderSpec(FrequencyFamily::kGeometric, 2, 1);
  geometric.rope_theta = 16;
  geometric.frequency_unit = FrequencyUnit::kTurns;
  EXPECT_EQ(*FrequenciesOf(geometric), (std::vector<Frequency>{{1, 0}, {0, uint64_t{1} << 62}}));
}

TEST(FrequenciesOfTest, LinearReachesBothEnds) {
  ResolvedSpec spec = LadderSpec(FrequencyFamily::kLinear, 5, 1);
  spec.frequency_unit = FrequencyUnit::kTurns;
  spec.min_freq = -1;
  spec.max_freq = 3;
  EXPECT_EQ(*FrequenciesOf(spec),
            (std::vector<Frequency>{{-1, 0}, {0, 0}, {1, 0}, {2, 0}, {3, 0}}));
  spec.axes_dim = {2};
  EXPECT_EQ(*FrequenciesOf(spec), (std::vector<Frequency>{{-1, 0}}));
}

TEST(FrequenciesOfTest, LogRangeIsGeometricBetweenItsEnds) {
  ResolvedSpec spec = LadderSpec(FrequencyFamily::kLogRange, 4, 1);
  spec.frequency_unit = FrequencyUnit::kTurns;
  spec.min_freq = 0.25;
  spec.max_freq = 2500;
  spec.downscale_freq_shift = 1;
  const auto frequencies = FrequenciesOf(spec);
  for (int64_t j = 0; j < 4; ++j) {
    ExpectRounded((*frequencies)[j], Real(0.25) * pow(Real(10000), Real(j) / 3), std::to_string(j));
  }
}

TEST(FrequenciesOfTest, TakesBaseAndScaleOfEachAxis) {
  ResolvedSpec spec = LadderSpec(FrequencyFamily::kGeometric, 4, -0.5);
  spec.axes = 2;
  spec.axis_rule = AxisRule::kAxial;
  spec.axes_dim = {4, 4};
  spec.axes_theta = {100, 16};
  spec.axes_position_scale = {3, 1.0 / 3};
  const auto frequencies = FrequenciesOf(spec);
  ExpectRounded((*frequencies)[1], testing::GeometricTurns(-1.5, 100, Real(0.5)), "axis 0");
  ExpectRounded((*frequencies)[3], testing::GeometricTurns(Real(1.0 / 3) * -0.5, 16, Real(0.5)),
                "axis 1");
}

TEST(FrequenciesOfTest, FrequencyMajorRestartsTheLadderForEveryAxis) {
  ResolvedSpec spec = LadderSpec(FrequencyFamily::kGeometric, 4, 1);
  spec.axes = 2;
  spec.axis_rule = AxisRule::kFrequencyMajor;
  spec.axes_dim = {};
  const auto frequencies = FrequenciesOf(spec);
  EXPECT_EQ((*frequencies)[0], (*frequencies)[1]);
  ExpectRounded((*frequencies)[3], testing::GeometricTurns(1, 10000, Real(0.5)), "pair 3");
}

TEST(FrequenciesOfTest, PutsLayersBeforeHeads) {
  ResolvedSpec spec = LadderSpec(FrequencyFamily::kExplicit, 1, 1);
  spec.axes = 2;
  spec.axis_rule = AxisRule::kDense;
  spec.axes_dim = {};
  spec.frequency_heads = 2;
  spec.frequency_unit = FrequencyUnit::kTurns;
  spec.inv_freq = {1, 2, 3, 4};  // [heads, axes, pairs]
  EXPECT_EQ(*FrequenciesOf(spec), (std::vector<Frequency>{{1, 0}, {3, 0}, {2, 0}, {4, 0}}));
}

TEST(FrequenciesOfTest, StopsTurningAfterTheLivePairs) {
  ResolvedSpec spec = LadderSpec(FrequencyFamily::kGeometric, 4, 1);
  spec.live_pairs = 2;
  const auto frequencies = FrequenciesOf(spec);
  ExpectRounded((*frequencies)[1], testing::GeometricTurns(1, 10000, Real(0.25)), "live");
  EXPECT_EQ((*frequencies)[2], Frequency{});
  EXPECT_EQ((*frequencies)[3], Frequency{});
}

TEST(PhasesOfTest, AreTurnsModuloOne) {
  ResolvedSpec spec;
  EXPECT_TRUE(PhasesOf(spec)->empty());
  spec.phase = {0.25, -0.25, 3.5, 1e-30};
  spec.frequency_unit = FrequencyUnit::kTurns;
  EXPECT_EQ(*PhasesOf(spec),
            (std::vector<uint64_t>{uint64_t{1} << 62, uint64_t{3} << 62, uint64_t{1} << 63, 0}));
  spec.phase = {1};
  spec.frequency_unit = FrequencyUnit::kRadians;
  EXPECT_EQ(Integer(PhasesOf(spec)->front()), RoundToFixed(1 / testing::TwoPi()));
  spec.phase = {1e300};
  EXPECT_FALSE(PhasesOf(spec).has_value());
}

TEST(RadiansPerUnitTest, IsTheNearestDouble) {
  EXPECT_EQ(RadiansPerUnit({1, 0}), 2 * std::numbers::pi);
  EXPECT_EQ(RadiansPerUnit({-1, uint64_t{1} << 63}), -std::numbers::pi);
  EXPECT_EQ(RadiansPerUnit({0, 0}), 0.0);
  const auto frequencies = GeometricFrequencies(10000, 0, 64, 1);
  EXPECT_EQ(RadiansPerUnit((*frequencies)[0]), 1.0);
  EXPECT_NEAR(RadiansPerUnit((*frequencies)[32]), 0.01, 1e-17);
}

}  // namespace
}  // namespace phasor
