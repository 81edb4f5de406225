// SPDX-License-Identifier: Apache-2.0
// The quotient that a GPU computes is that of IEEE division, from any reciprocal that is as
// inaccurate as a GPU's may be.
#include "kernels/math/quotient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "kernels/math/convert.h"

namespace phasor {
namespace {

// 1 / b with an error of up to 2^-18.
double Seed(float b, std::mt19937_64& random) {
  const double error = static_cast<double>(random() % 2001) / 1000 - 1;
  return 1 / static_cast<double>(b) * (1 + error * 0x1p-18);
}

void ExpectQuotient(float a, float b, std::mt19937_64& random) {
  const float want = a / b, got = QuotientFrom(Seed(b, random), a, b);
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got)) << a << " / " << b;
  } else {
    ASSERT_EQ(BitsFromFloat(got), BitsFromFloat(want)) << a << " / " << b << ": " << got;
  }
  ASSERT_EQ(BitsFromFloat(QuotientOf(1.0f, b)), BitsFromFloat(1.0f / b));
  if (!IsInMiddle(a) || !IsMiddleDivisor(b)) return;
  const float nearest = 1 / b;
  for (const float seed :
       {nearest, std::nextafter(nearest, INFINITY), std::nextafter(nearest, -INFINITY)}) {
    ASSERT_EQ(BitsFromFloat(MiddleQuotientFrom(seed, a, b)), BitsFromFloat(want))
        << a << " / " << b << " from " << seed;
  }
}

TEST(QuotientTest, OfAnyBitsIsThatOfIeee) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2'000'000 && !::testing::Test::HasFatalFailure(); ++i) {
    const uint64_t bits = random();
    const float b = FloatFromBits(static_cast<uint32_t>(bits >> 32));
    if (b == 0 || std::isnan(b)) continue;
    ExpectQuotient(FloatFromBits(static_cast<uint32_t>(bits)), b, random);
  }
}

// Products of b and numbers of few bits, and their neighbours: exact quotients, ties, and what is
// closest to them; with subnormal quotients, too.
TEST(QuotientTest, NearTiesIsThatOfIeee) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1'000'000 && !::testing::Test::HasFatalFailure(); ++i) {
    const int bits = static_cast<int>(random() % 24) + 1;
    const auto few = static_cast<float>(random() % (uint64_t{1} << bits) * 2 + 1);
    const auto factor = static_cast<float>(random() % (uint64_t{1} << (24 - bits)) + 1);
    const float b = std::ldexp(factor, static_cast<int>(random() % 100));
    if (!std::isfinite(b)) continue;
    float a = std::ldexp(few * factor, static_cast<int>(random() % 120) - 149 - bits);
    const uint64_t side = random() % 3;
    if (side == 1) a = std::nextafter(a, INFINITY);
    if (side == 2) a = std::nextafter(a, -INFINITY);
    ExpectQuotient(random() % 2 == 0 ? a : -a, b, random);
  }
}

// The quotients of Q8_0: by 127, and reciprocals.
TEST(QuotientTest, OfEveryMantissaIsThatOfIeee) {
  for (uint32_t bits = 0x3F800000; bits < 0x40000000 && !::testing::Test::HasFatalFailure();
       ++bits) {
    const float x = FloatFromBits(bits);
    for (const auto& [a, b] : {std::pair(x, 127.0f), std::pair(1.0f, x)}) {
      if (!IsMiddleDivisor(b)) continue;
      const float nearest = 1 / b;
      for (const int ulps : {-1, 0, 1}) {
        const float seed = FloatFromBits(BitsFromFloat(nearest) + static_cast<uint32_t>(ulps));
        ASSERT_EQ(MiddleQuotientFrom(seed, a, b), a / b) << a << " / " << b << " from " << seed;
      }
    }
  }
}

TEST(QuotientTest, TheMiddleEndsBeforeAnyStepLeavesTheRange) {
  for (const float inside : {0x1p-60f, -0x1p-60f, 1.0f, 0x1.fffffep59f})
    EXPECT_TRUE(IsInMiddle(inside));
  for (const float outside :
       {0.0f, -0.0f, 0x1.fffffep-61f, 0x1p60f, -0x1p60f, INFINITY, NAN, -NAN}) {
    EXPECT_FALSE(IsInMiddle(outside));
  }
  EXPECT_TRUE(IsMiddleDivisor(0x1.fffffcp59f));
  EXPECT_FALSE(IsMiddleDivisor(0x1.fffffep0f));
  EXPECT_FALSE(IsMiddleDivisor(0x1p60f));
  std::mt19937_64 random(4);
  for (const float a : {0x1p-60f, 0x1.000002p-60f, 0x1.fffffep59f}) {
    for (const float b : {0x1p-60f, 0x1.000002p-60f, 0x1.8p-60f, 0x1.fffffcp59f})
      ExpectQuotient(a, b, random);
  }
}

TEST(QuotientTest, OfZeroInfinityAndNanIsThatOfIeee) {
  std::mt19937_64 random(3);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float a : {0.0f, 1.0f, 0x1p-149f, 0x1.fffffep127f, kInfinity, std::nanf("")}) {
    for (const float b : {1.0f, 127.0f, 0x1p-149f, 0x1.fffffep127f, kInfinity}) {
      for (const float sign : {1.0f, -1.0f}) {
        ExpectQuotient(a, sign * b, random);
        ExpectQuotient(-a, sign * b, random);
      }
    }
  }
}

}  // namespace
}  // namespace phasor
