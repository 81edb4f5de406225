// SPDX-License-Identifier: Apache-2.0
// Frequencies against their formulas in 320-bit arithmetic, one element at a time.
#include "kernels/frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::Integer;
using testing::Real;
using testing::RoundToFixed;
using testing::ToFixed;

void ExpectRounded(const Frequency& f, const Real& turns, const std::string& what) {
  EXPECT_EQ(ToFixed(f.whole, f.fraction), RoundToFixed(turns)) << what;
}

TEST(GeometricFrequenciesTest, AreCorrectlyRoundedForTheBasesInUse) {
  for (const double base : {10000.0, 500000.0, 1e6, 5e6, 256.0, 100.0, 2000.0}) {
    for (const int64_t pairs : {1, 2, 3, 22, 64, 129}) {
      const auto frequencies = GeometricFrequencies(base, static_cast<double>(pairs), pairs, 1);
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
  const auto frequencies = GeometricFrequencies(10000, kPairs, kPairs, 1);
  ASSERT_TRUE(frequencies.has_value());
  for (const int64_t j : {int64_t{1}, kPairs / 2, kPairs - 2, kPairs - 1}) {
    ExpectRounded((*frequencies)[j], testing::GeometricTurns(1, 10000, Real(j) / kPairs),
                  std::to_string(j));
  }
}

TEST(GeometricFrequenciesTest, FollowAFractionalDenominatorAndASmallBase) {
  for (const double denominator : {63.0, 7.25, 1e-2, -5.0}) {
    for (const double base : {0.5, 1.0, 1.0000001, 3.0}) {
      const auto frequencies = GeometricFrequencies(base, denominator, 8, 1);
      if (!frequencies.has_value()) continue;
      for (int64_t j = 0; j < 8; ++j) {
        ExpectRounded(
            (*frequencies)[j], testing::GeometricTurns(1, base, Real(j) / Real(denominator)),
            std::to_string(base) + "^-" + std::to_string(j) + "/" + std::to_string(denominator));
      }
    }
  }
}

TEST(GeometricFrequenciesTest, FoldAScaleOfEitherSignInBeforeRounding) {
  for (const double scale : {1000.0, -1000.0, 0.125, -1.0 / 3, 1e15, -1e-18}) {
    const auto frequencies = GeometricFrequencies(10000, 16, 16, scale);
    ASSERT_TRUE(frequencies.has_value());
    for (int64_t j = 0; j < 16; ++j) {
      ExpectRounded((*frequencies)[j], testing::GeometricTurns(Real(scale), 10000, Real(j) / 16),
                    std::to_string(scale));
    }
  }
}

TEST(GeometricFrequenciesTest, VanishInsteadOfUnderflowing) {
  const auto steep = GeometricFrequencies(1.7e308, 1e-300, 3, 1);
  ASSERT_TRUE(steep.has_value());
  EXPECT_EQ((*steep)[1], Frequency{});
  EXPECT_EQ((*steep)[2], Frequency{});
  const auto faint = GeometricFrequencies(10000, 4, 4, 5e-324);
  ASSERT_TRUE(faint.has_value());
  EXPECT_EQ((*faint)[0], Frequency{});
  const auto none = GeometricFrequencies(10000, 4, 4, 0);
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ((*none)[0], Frequency{});
}

TEST(GeometricFrequenciesTest, RefuseTwoToThe63TurnsAndMore) {
  const double limit = std::ldexp(2 * std::numbers::pi, 63);
  EXPECT_FALSE(GeometricFrequencies(10000, 4, 4, limit * 1.0000001).has_value());
  EXPECT_FALSE(GeometricFrequencies(10000, 4, 4, -limit * 1.0000001).has_value());
  EXPECT_TRUE(GeometricFrequencies(10000, 4, 4, limit * 0.9999999).has_value());
  EXPECT_FALSE(GeometricFrequencies(1e-300, 1, 2, 1).has_value());
  EXPECT_FALSE(GeometricFrequencies(5e-324, 1e-300, 2, 1).has_value());
  EXPECT_FALSE(GeometricFrequencies(10000, 4, 4, 1.7e308).has_value());
}

TEST(PeriodFrequenciesTest, AreCorrectlyRoundedForFlowMatching) {
  for (const int64_t pairs : {1, 2, 4, 512}) {
    const double denominator = pairs == 1 ? 1 : static_cast<double>(pairs - 1);
    const auto frequencies = PeriodFrequencies(4e-3, 4.0, denominator, pairs, 1);
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
  const auto frequencies = PeriodFrequencies(0.25, 64.0, 4, 5, -1);
  ASSERT_TRUE(frequencies.has_value());
  EXPECT_EQ((*frequencies)[0], (Frequency{-4, 0}));
  EXPECT_EQ((*frequencies)[1], (Frequency{-1, 0}));
  EXPECT_EQ((*frequencies)[2], (Frequency{-1, uint64_t{3} << 62}));
  EXPECT_EQ((*frequencies)[4], (Frequency{-1, ~uint64_t{0} << 58}));
}

TEST(PeriodFrequenciesTest, RoundTiesToEven) {
  const auto unit = [](double units) {
    return PeriodFrequencies(1, 1, 1, 1, std::ldexp(units, -64))->front().fraction;
  };
  EXPECT_EQ(unit(0.5), 0u);
  EXPECT_EQ(unit(1.5), 2u);
  EXPECT_EQ(unit(2.5), 2u);
  EXPECT_EQ(unit(0.75), 1u);
  EXPECT_EQ(unit(0.25), 0u);
  EXPECT_EQ(unit(-0.5), 0u);
  EXPECT_EQ(unit(-1.5), ~uint64_t{0} - 1);
  // A tie that the power reaches only up to its own rounding: 2^-65 turns.
  const auto ladder = PeriodFrequencies(1, std::ldexp(1.0, 130), 2, 2, 1);
  EXPECT_EQ((*ladder)[1], Frequency{});
  const auto three = PeriodFrequencies(1, std::ldexp(1.0, 130), 2, 2, 3);
  EXPECT_EQ((*three)[1], (Frequency{0, 2}));
}

TEST(PeriodFrequenciesTest, RefuseTwoToThe63TurnsAndMore) {
  EXPECT_FALSE(PeriodFrequencies(0x1p-63, 1, 1, 1, 1).has_value());
  EXPECT_TRUE(PeriodFrequencies(0x1.0000000000001p-63, 1, 1, 1, 1).has_value());
  EXPECT_FALSE(PeriodFrequencies(1, 0x1p-63, 1, 2, 1).has_value());
}

TEST(RadiansPerUnitTest, IsTheNearestDouble) {
  EXPECT_EQ(RadiansPerUnit({1, 0}), 2 * std::numbers::pi);
  EXPECT_EQ(RadiansPerUnit({-1, uint64_t{1} << 63}), -std::numbers::pi);
  EXPECT_EQ(RadiansPerUnit({0, 0}), 0.0);
  const auto frequencies = GeometricFrequencies(10000, 64, 64, 1);
  EXPECT_EQ(RadiansPerUnit((*frequencies)[0]), 1.0);
  EXPECT_NEAR(RadiansPerUnit((*frequencies)[32]), 0.01, 1e-17);
}

}  // namespace
}  // namespace phasor
