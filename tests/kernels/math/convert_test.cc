// SPDX-License-Identifier: Apache-2.0
// Conversions of narrow floats, compared with the compiler's _Float16 and with exact arithmetic.
#include "kernels/math/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

namespace phasor {
namespace {

// Floats that matter for rounding: every half-way point between neighbours, and the floats beside
// it.
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

// Checks for the nearest bfloat16 by distance, ties to the even one.
void CheckBFloat16(float x) {
  const uint16_t down = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  const double low = FloatFromBFloat16(down);
  // The step after the largest finite value counts as 2^128.
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

// The value of a type's bits by its definition: sign, exponent and fraction.
double Float8Value(uint8_t bits, Float8 type) {
  const int fraction_bits = type == Float8::kE4M3 ? 3 : 2;
  const int bias = type == Float8::kE4M3 ? 7 : 15;
  const int exponent = (bits & 0x7F) >> fraction_bits;
  const double fraction = std::ldexp(bits & ((1 << fraction_bits) - 1), -fraction_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return bits & 0x80 ? -magnitude : magnitude;
}
uint8_t LargestFloat8(Float8 type) { return type == Float8::kE4M3 ? 0x7E : 0x7B; }

// The nearest finite value by distance, ties to the even one; NaN is 0x7F.
uint8_t NearestFloat8(float x, Float8 type) {
  if (std::isnan(x)) return 0x7F;
  const double largest = Float8Value(LargestFloat8(type), type);
  const double magnitude = std::min(std::abs(static_cast<double>(x)), largest);
  uint8_t best = 0;
  for (int i = 1; i <= LargestFloat8(type); ++i) {
    const auto bits = static_cast<uint8_t>(i);
    const double to_best = std::abs(magnitude - Float8Value(best, type));
    const double to_this = std::abs(magnitude - Float8Value(bits, type));
    if (to_this < to_best || (to_this == to_best && i % 2 == 0)) best = bits;
  }
  return static_cast<uint8_t>(std::signbit(x) ? best | 0x80 : best);
}

constexpr Float8 kFloat8Types[] = {Float8::kE4M3, Float8::kE5M2};

TEST(ConvertTest, WidensEveryFloat8Exactly) {
  for (const Float8 type : kFloat8Types) {
    for (int i = 0; i < 256; ++i) {
      const auto bits = static_cast<uint8_t>(i);
      const float got = FloatFromFloat8(bits, type);
      if ((bits & 0x7F) <= LargestFloat8(type)) {
        EXPECT_EQ(got, Float8Value(bits, type)) << i;
        EXPECT_EQ(std::signbit(got), bits >= 0x80) << i;
        EXPECT_EQ(Float8FromFloat(got, type), bits) << i;
      } else if (type == Float8::kE5M2 && (bits & 0x7F) == 0x7C) {
        EXPECT_TRUE(std::isinf(got)) << i;
      } else {
        EXPECT_TRUE(std::isnan(got)) << i;
      }
    }
  }
}

// Every bfloat16 and float16 value unscaled and scaled, and every tie with its neighbours.
TEST(ConvertTest, Float8IsTheNearestFiniteValue) {
  for (const Float8 type : kFloat8Types) {
    const auto check = [&](float x) {
      ASSERT_EQ(Float8FromFloat(x, type), NearestFloat8(x, type))
          << x << " to type " << static_cast<int>(type);
    };
    for (uint32_t bits = 0; bits < 65536; bits += 3) {
      for (const float scale : {1.0f, 0.3f, 117.0f}) {
        check(FloatFromBFloat16(static_cast<uint16_t>(bits)) * scale);
        check(FloatFromFloat16(static_cast<uint16_t>(bits)) * scale);
      }
    }
    for (int i = 0; i < LargestFloat8(type); ++i) {
      const auto low = static_cast<float>(Float8Value(static_cast<uint8_t>(i), type));
      const auto high = static_cast<float>(Float8Value(static_cast<uint8_t>(i + 1), type));
      const float middle = (low + high) / 2;
      for (const float x : {middle, std::nextafter(middle, low), std::nextafter(middle, high)}) {
        check(x);
        check(-x);
      }
    }
  }
}

TEST(ConvertTest, Float8SaturatesAndKeepsNans) {
  EXPECT_EQ(Float8FromFloat(448.0f, Float8::kE4M3), 0x7E);
  EXPECT_EQ(Float8FromFloat(1e30f, Float8::kE4M3), 0x7E);
  EXPECT_EQ(Float8FromFloat(-INFINITY, Float8::kE4M3), 0xFE);
  EXPECT_EQ(Float8FromFloat(57344.0f, Float8::kE5M2), 0x7B);
  EXPECT_EQ(Float8FromFloat(65536.0f, Float8::kE5M2), 0x7B);
  EXPECT_EQ(Float8FromFloat(INFINITY, Float8::kE5M2), 0x7B);
  for (const Float8 type : kFloat8Types) {
    EXPECT_EQ(Float8FromFloat(NAN, type), 0x7F);
    EXPECT_EQ(Float8FromFloat(-NAN, type), 0x7F);
    EXPECT_EQ(Float8FromFloat(-0.0f, type), 0x80);
    EXPECT_EQ(Float8FromFloat(-0x1p-149f, type), 0x80);
  }
}

}  // namespace
}  // namespace phasor
