// SPDX-License-Identifier: Apache-2.0
// xPos amplitudes, compared with 320-bit arithmetic, and where they saturate.
#include "kernels/math/xpos.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <limits>

#include "kernels/plan/frequencies.h"
#include "kernels/tensor/positions.h"
#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::Real;

constexpr Exponent kOne = Exponent{1} << 64;

Position At(double x) {
  Position p;
  EXPECT_TRUE(PositionFromDouble(x, &p));
  return p;
}

// zeta_j^((p - center) / scale_base), computed directly from the formula.
Real TrueAmplitude(int64_t j, int64_t pairs, double p, double center, double scale_base) {
  const Real zeta = (Real(2 * j) + Real(2 * pairs) * 4 / 10) / (Real(2 * pairs) * 14 / 10);
  return exp(log(zeta) * (Real(p) - Real(center)) / Real(scale_base));
}

double Amplitude(uint64_t rate, double p, double center, bool inverse) {
  return Exp2(XposExponent(At(p), At(center), rate, inverse));
}

double RelativeError(double got, const Real& want) {
  return static_cast<double>(abs(Real(got) - want) / want);
}

TEST(XposTest, AmplitudeKeepsItsErrorBound) {
  double worst = 0;
  for (const int64_t pairs : {1, 2, 32, 64}) {
    for (const double scale_base : {2.0, 512.0, 1000.5}) {
      const auto rates = XposRates(pairs, scale_base);
      for (int64_t j = 0; j < pairs; j += 5) {
        for (const double center : {0.0, 1024.0, -0.5}) {
          for (const double p : {0.0, 1.0, 511.0, 512.0, 1023.25, 0.001, -77.0, 2047.0}) {
            for (const bool inverse : {false, true}) {
              const double got = Amplitude(rates[j], p, center, inverse);
              Real want = TrueAmplitude(j, pairs, p, center, scale_base);
              if (inverse) want = 1 / want;
              if (want > Real(1e300) || want < Real(1e-300)) continue;
              const double error = RelativeError(got, want);
              const double bound = 0x1.2p-52 + 0.7 * (std::abs(p - center) * 0x1p-65 + 0x1p-64);
              worst = std::max(worst, error / bound);
              EXPECT_LE(error, bound) << "pair " << j << " of " << pairs << " at " << p;
            }
          }
        }
      }
    }
  }
  std::cout << "worst error: " << worst << " of its bound\n";
}

TEST(XposTest, PowersOfTwoAreExact) {
  for (int n = -1074; n <= 1023; ++n) EXPECT_EQ(Exp2(n * kOne), std::ldexp(1.0, n));
}

TEST(XposTest, ExponentsThatCancelGiveExactlyOne) {
  const auto rates = XposRates(64, 512.0);
  for (const uint64_t rate : rates) {
    const Exponent there = XposExponent(At(131071), At(4096), rate, true);
    const Exponent back = XposExponent(At(131071), At(4096), rate, false);
    EXPECT_EQ(Exp2(there + back), 1.0);
    EXPECT_EQ(Amplitude(rate, 4096, 4096, false), 1.0);
  }
}

TEST(XposTest, ExponentsOfIntegersDependOnTheDistanceAlone) {
  const uint64_t rate = XposRates(64, 512.0)[7];
  const auto between = [&](int64_t to, int64_t from) {
    return XposExponent({to, 0}, {}, rate, false) - XposExponent({from, 0}, {}, rate, false);
  };
  EXPECT_TRUE(between(18, 1) == between(1000000000017, 1000000000000));
  EXPECT_TRUE(between(-1, -18) == between(18, 1));
}

TEST(XposTest, HugeDistancesBecomeInfinityAndZero) {
  const uint64_t rate = XposRates(64, 512.0)[0];
  EXPECT_EQ(Amplitude(rate, 1e9, 0, false), 0.0);
  EXPECT_EQ(Amplitude(rate, 1e9, 0, true), std::numeric_limits<double>::infinity());
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Exp2(XposExponent({kMin, 0}, {kMax, ~uint64_t{0}}, ~uint64_t{0}, false)),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(Exp2(XposExponent({kMax, ~uint64_t{0}}, {kMin, 0}, ~uint64_t{0}, false)), 0.0);
  EXPECT_EQ(Exp2(1024 * kOne), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Exp2(-1080 * kOne), 0.0);
}

TEST(XposTest, RealDistancesBorrowFromTheWholePart) {
  const uint64_t rate = uint64_t{1} << 62;  // a quarter of an octave
  EXPECT_EQ(Amplitude(rate, 0.5, 4.5, true), 0.5);
  EXPECT_EQ(Amplitude(rate, 4.25, 8.5, true), std::exp2(-4.25 / 4));
}

TEST(XposRatesTest, AreNearestToTheirTrueValues) {
  for (const int64_t pairs : {1, 3, 64}) {
    const auto rates = XposRates(pairs, 512.0);
    for (int64_t j = 0; j < pairs; ++j) {
      const Real zeta = (Real(j) + Real(pairs) * 2 / 5) / (Real(pairs) * 7 / 5);
      const Real want = -log(zeta) / log(Real(2)) / 512;
      EXPECT_EQ(testing::Integer(rates[j]), testing::RoundToFixed(want));
    }
  }
}

}  // namespace
}  // namespace phasor
