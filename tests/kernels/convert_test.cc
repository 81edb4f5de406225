// SPDX-License-Identifier: Apache-2.0
// 16-bit conversions against the compiler's own _Float16 and against exact arithmetic.
#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

namespace phasor {
namespace {

// Floats that matter for rounding: every half-way point between neighbours and what is next to it.
void AroundTies(float value, float next, void (*check)(float)) {
  const float middle =
      static_cast<float>((static_cast<double>(value) + static_cast<double>(next)) / 2);
  for (float x : {value, std::nextafter(middle, value), middle, std::nextafter(middle, next)})
    check(x);
}

void CheckFloat16(float x) {
  const uint16_t want = std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  EXPECT_EQ(Float16FromFloat(x), want) << x;
}

// The nearest bfloat16 by distance, ties to the even one.
void CheckBFloat16(float x) {
  const uint16_t down = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  const double low = FloatFromBFloat16(down);
  // One step past the largest finite value counts as 2^128.
  const uint16_t up = static_cast<uint16_t>(down + 1);
  const double high =
      std::isinf(FloatFromBFloat16(up)) ? std::copysign(0x1p128, x) : FloatFromBFloat16(up);
  const double to_low = std::abs(x - low), to_high = std::abs(high - x);
  const uint16_t want = to_low < to_high || (to_low == to_high && down % 2 == 0) ? down : up;
  EXPECT_EQ(BFloat16FromFloat(x), want) << x;
}

TEST(ConvertTest, WidensEveryFloat16Exactly) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float want = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
    const float got = FloatFromFloat16(static_cast<uint16_t>(bits));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << bits;
    }
  }
}

TEST(ConvertTest, NarrowingReversesWideningOfEvery16BitValue) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if (!std::isnan(FloatFromFloat16(bits))) {
      EXPECT_EQ(Float16FromFloat(FloatFromFloat16(bits)), bits);
    }
    if (!std::isnan(FloatFromBFloat16(bits))) {
      EXPECT_EQ(BFloat16FromFloat(FloatFromBFloat16(bits)), bits);
    }
  }
}

TEST(ConvertTest, RoundsToNearestEvenFloat16AroundEveryTie) {
  for (uint32_t i = 0; i < 0x7BFF; ++i) {
    const float low = FloatFromFloat16(static_cast<uint16_t>(i));
    const float high = FloatFromFloat16(static_cast<uint16_t>(i + 1));
    AroundTies(low, high, CheckFloat16);
    AroundTies(-low, -high, CheckFloat16);
  }
  for (float x : {65504.0f, 65519.996f, 65520.0f, 1e30f, INFINITY}) CheckFloat16(x);
}

TEST(ConvertTest, RoundsToNearestEvenBFloat16KeepingSubnormals) {
  for (uint32_t i = 0; i < 0x7F7F; i += 7) {
    const float low = FloatFromBFloat16(static_cast<uint16_t>(i));
    const float high = FloatFromBFloat16(static_cast<uint16_t>(i + 1));
    AroundTies(low, high, CheckBFloat16);
    AroundTies(-low, -high, CheckBFloat16);
  }
  CheckBFloat16(0x1.fffffep127f);  // rounds to infinity
  CheckBFloat16(0x1p-149f);        // a subnormal below half the smallest bfloat16
}

TEST(ConvertTest, RandomFloatsRoundLikeTheCompilers) {
  std::mt19937 random(20240601);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    CheckFloat16(x);
    if (!std::isinf(x)) CheckBFloat16(x);
  }
}

TEST(ConvertTest, NansStayNans) {
  for (uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0xFFC00000u, 0xFFFFFFFFu}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(FloatFromFloat16(Float16FromFloat(nan))));
    EXPECT_TRUE(std::isnan(FloatFromBFloat16(BFloat16FromFloat(nan))));
  }
}

}  // namespace
}  // namespace phasor
