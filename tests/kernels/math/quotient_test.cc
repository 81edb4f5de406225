// SPDX-License-Identifier: Apache-2.0
// The quotient that a GPU computes is that of IEEE division, from any reciprocal that is as
// inaccurate as a GPU's may be.
#include "kernels/math/quotient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

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
