// SPDX-License-Identifier: Apache-2.0
// pow, exp and log rounded once, compared with exact results, printed digits and libm.
#include "kernels/plan/parity/elementary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace phasor::parity {
namespace {

constexpr Dtype kF32 = Dtype::kFloat32;
constexpr Dtype kF64 = Dtype::kFloat64;

// If the type holds the exact result, correct rounding must return it.
TEST(ElementaryTest, ExactResultsAreExact) {
  EXPECT_EQ(Pow(kF32, 10000, 0.5), 100);
  EXPECT_EQ(Pow(kF64, 10000, 0.25), 10);
  EXPECT_EQ(Pow(kF64, 2, -1074), 0x1p-1074);
  EXPECT_EQ(Pow(kF32, 500000, 0), 1);
  EXPECT_EQ(Exp(kF64, 0), 1);
  EXPECT_EQ(Log(kF64, 1), 0);
}

// Digits from tables: e, ln 10, 10^(1/2).
TEST(ElementaryTest, KnownConstantsRoundOnce) {
  EXPECT_EQ(Exp(kF64, 1), 2.718281828459045235360287471352662498);
  EXPECT_EQ(Exp(kF32, 1), static_cast<double>(2.718281828459045235360287471352662498f));
  EXPECT_EQ(Log(kF64, 10), 2.302585092994045684017991454684364208);
  EXPECT_EQ(Pow(kF64, 10, 0.5), 3.162277660168379331998893544432718534);
}

TEST(ElementaryTest, F32ResultsAreWithinOneUnitOfLibm) {
  for (int j = 0; j < 64; ++j) {
    const float exponent = static_cast<float>(j) / 64;
    const float libm = std::pow(500000.0f, exponent);
    const double ulp = std::nextafter(libm, INFINITY) - libm;
    EXPECT_LE(std::abs(Pow(kF32, 500000, exponent) - libm), ulp) << j;
  }
}

TEST(ElementaryTest, ResultsBeyondTheTypeAreInfiniteOrZero) {
  EXPECT_EQ(Pow(kF32, 1e30, 2), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Exp(kF32, -1000), 0);
}

}  // namespace
}  // namespace phasor::parity
