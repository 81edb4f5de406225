// SPDX-License-Identifier: Apache-2.0
// SinCos32 and SinCos64, compared with true values at random phases and at every structure of their
// bits. Prints the worst cases.
#include "kernels/math/sincos.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cstdio>
#include <numbers>
#include <random>
#include <vector>

#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::UlpError;

// Sine and cosine in long double (64 bits on x86, which is 2^-40 of an f32 ulp). The quadrant and
// the remainder are exact integers.
SinCos<long double> LongTruth(uint64_t phase) {
  const uint64_t p = phase + (uint64_t{1} << 61);
  const int64_t r = static_cast<int64_t>(p & ((uint64_t{1} << 62) - 1)) - (int64_t{1} << 61);
  const long double angle =
      std::ldexp(static_cast<long double>(r), -64) * 2 * std::numbers::pi_v<long double>;
  return ToQuadrant(static_cast<uint32_t>(p >> 62), std::sin(angle), std::cos(angle));
}

SinCos<testing::Real> ExactTruth(uint64_t phase) {
  const testing::Real turns = testing::PhaseToTurns(phase);
  return {testing::TrueSinTurns(turns), testing::TrueCosTurns(turns)};
}

struct Worst {
  double ulp = 0;
  double absolute = 0;
  uint64_t at = 0;
  int64_t values = 0;
  int64_t correctly_rounded = 0;

  template <typename T, typename R>
  void See(T got, const R& want, uint64_t phase) {
    using std::abs;
    const double error = UlpError(got, want);
    if (error > ulp) at = phase;
    ulp = std::max(ulp, error);
    absolute = std::max(absolute, static_cast<double>(abs(R(got) - want)));
    ++values;
    correctly_rounded += got == static_cast<T>(want);
  }

  void Print(const char* what) const {
    std::printf(
        "%-24s %9lld values: worst %.4f ulp (phase 0x%016llx), 2^%.2f absolute, %.2f %% correctly "
        "rounded\n",
        what, static_cast<long long>(values), ulp, static_cast<unsigned long long>(at),
        std::log2(absolute), 100.0 * correctly_rounded / values);
  }
};

// Remainders of every bit length, beside every field boundary, in every quadrant.
std::vector<uint64_t> StructuredPhases() {
  std::mt19937_64 random(7);
  std::vector<uint64_t> offsets = {0};
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t one = uint64_t{1} << bit;
    for (const uint64_t base :
         {one, one - 1, one + 1, one + (one >> 1), one | (random() & (one - 1))}) {
      offsets.push_back(base);
    }
  }
  for (int unit = -4; unit <= 4; ++unit) {
    for (const uint64_t jitter : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, random() >> 33}) {
      offsets.push_back((static_cast<uint64_t>(unit) << 32) + jitter);
      offsets.push_back((static_cast<uint64_t>(unit) << 32) + (uint64_t{1} << 31) + jitter);
      offsets.push_back((static_cast<uint64_t>(unit) << 37) + jitter);
      offsets.push_back((uint64_t{1} << 61) + (static_cast<uint64_t>(unit) << 32) + jitter);
    }
  }
  std::vector<uint64_t> phases;
  for (uint64_t eighth = 0; eighth < 8; ++eighth) {
    for (const uint64_t offset : offsets) {
      phases.push_back((eighth << 61) + offset);
      phases.push_back((eighth << 61) - offset);
    }
  }
  return phases;
}

TEST(SinCos32Test, StaysWithinTheContractOnUniformPhases) {
  if (LDBL_MANT_DIG < 64) GTEST_SKIP() << "long double is no better than double here";
  std::mt19937_64 random(1);
  Worst worst;
  for (int i = 0; i < 1'000'000; ++i) {
    const uint64_t phase = random();
    const auto [sin, cos] = SinCos32(phase);
    const auto truth = LongTruth(phase);
    worst.See(sin, truth.sin, phase);
    worst.See(cos, truth.cos, phase);
  }
  worst.Print("f32 uniform");
  EXPECT_LE(worst.ulp, 1.5);
  EXPECT_LE(worst.absolute, std::exp2(-23.9));
  EXPECT_GE(worst.correctly_rounded, 0.84 * worst.values);
}

TEST(SinCos32Test, StaysWithinTheContractOnSmallRemaindersOfEveryLength) {
  if (LDBL_MANT_DIG < 64) GTEST_SKIP() << "long double is no better than double here";
  std::mt19937_64 random(2);
  Worst worst;
  for (int i = 0; i < 500'000; ++i) {
    const uint64_t remainder = random() >> (3 + i % 61);
    const uint64_t quadrant = random() << 62;
    const uint64_t phase = i % 2 == 0 ? quadrant + remainder : quadrant - remainder;
    const auto [sin, cos] = SinCos32(phase);
    const auto truth = LongTruth(phase);
    worst.See(sin, truth.sin, phase);
    worst.See(cos, truth.cos, phase);
  }
  worst.Print("f32 small remainders");
  EXPECT_LE(worst.ulp, 1.5);
  EXPECT_LE(worst.absolute, std::exp2(-23.9));
}

TEST(SinCos32Test, StaysWithinTheContractAtEveryBoundaryOfItsFields) {
  Worst worst;
  for (const uint64_t phase : StructuredPhases()) {
    const auto [sin, cos] = SinCos32(phase);
    const auto truth = ExactTruth(phase);
    worst.See(sin, truth.sin, phase);
    worst.See(cos, truth.cos, phase);
  }
  worst.Print("f32 structured");
  EXPECT_LE(worst.ulp, 1.5);
  EXPECT_LE(worst.absolute, std::exp2(-23.9));
}

TEST(SinCos64Test, StaysWithinTheContractOnUniformPhases) {
  if (LDBL_MANT_DIG < 64) GTEST_SKIP() << "long double is no better than double here";
  std::mt19937_64 random(3);
  Worst worst;
  for (int i = 0; i < 500'000; ++i) {
    const uint64_t phase = random();
    const auto [sin, cos] = SinCos64(phase);
    const auto truth = LongTruth(phase);
    worst.See(sin, truth.sin, phase);
    worst.See(cos, truth.cos, phase);
  }
  worst.Print("f64 uniform");
  EXPECT_LE(worst.absolute, std::exp2(-51));
}

TEST(SinCos64Test, StaysWithinTheContractAtEveryBoundaryOfItsFields) {
  Worst worst;
  for (const uint64_t phase : StructuredPhases()) {
    const auto [sin, cos] = SinCos64(phase);
    const auto truth = ExactTruth(phase);
    worst.See(sin, truth.sin, phase);
    worst.See(cos, truth.cos, phase);
  }
  worst.Print("f64 structured");
  EXPECT_LE(worst.absolute, std::exp2(-51));
}

template <typename T>
void ExpectExactAtQuarterTurns(SinCos<T> (*sin_cos)(uint64_t)) {
  const T expected[][2] = {{0, 1}, {1, 0}, {0, -1}, {-1, 0}};
  for (uint64_t quarter = 0; quarter < 4; ++quarter) {
    const auto [sin, cos] = sin_cos(quarter << 62);
    EXPECT_EQ(sin, expected[quarter][0]);
    EXPECT_EQ(cos, expected[quarter][1]);
  }
}

TEST(SinCosTest, IsExactAtQuarterTurns) {
  ExpectExactAtQuarterTurns<float>(&SinCos32);
  ExpectExactAtQuarterTurns<double>(&SinCos64);
}

TEST(SinCosTest, ACosineIsTheSineAQuarterTurnAheadBitForBit) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t phase = random();
    ASSERT_EQ(SinCos32(phase).cos, SinCos32(phase + (uint64_t{1} << 62)).sin);
    ASSERT_EQ(SinCos64(phase).cos, SinCos64(phase + (uint64_t{1} << 62)).sin);
  }
}

TEST(SinCosTest, StaysInTheClosedUnitInterval) {
  for (const uint64_t phase : StructuredPhases()) {
    EXPECT_LE(std::abs(SinCos32(phase).sin), 1.0f);
    EXPECT_LE(std::abs(SinCos32(phase).cos), 1.0f);
    EXPECT_LE(std::abs(SinCos64(phase).sin), 1.0);
    EXPECT_LE(std::abs(SinCos64(phase).cos), 1.0);
  }
}

}  // namespace
}  // namespace phasor
