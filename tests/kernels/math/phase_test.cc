// SPDX-License-Identifier: Apache-2.0
// PhaseOf, compared with exact rationals.
#include "kernels/math/phase.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::Integer;
using testing::ToFixed;

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

// floor(p * f * 2^64) modulo 2^64.
uint64_t ExactPhase(Position p, Frequency f) {
  const Integer product = ToFixed(p.whole, p.fraction) * ToFixed(f.whole, f.fraction);
  const Integer turn = Integer(1) << 128;
  Integer rest = product % turn;
  if (rest < 0) rest += turn;
  return static_cast<uint64_t>(Integer(rest >> 64));
}

std::vector<Frequency> SomeFrequencies(std::mt19937_64& random) {
  std::vector<Frequency> frequencies = {{0, 0},   {0, 1},       {-1, 0},
                                        {250, 0}, {kLowest, 5}, {kHighest, ~0ull}};
  for (int bits = 0; bits < 64; ++bits) {
    frequencies.push_back({0, random() >> bits});
    frequencies.push_back({static_cast<int64_t>(random()) >> bits, random()});
  }
  return frequencies;
}

TEST(PhaseOfTest, IsExactForIntegerPositionsOfEitherSign) {
  std::mt19937_64 random(1);
  std::vector<int64_t> positions = {0,       1,       -1, 2, 131071, 1048575, int64_t{1} << 32,
                                    kLowest, kHighest};
  for (int bits = 0; bits < 64; ++bits) positions.push_back(static_cast<int64_t>(random()) >> bits);
  for (const Frequency f : SomeFrequencies(random)) {
    for (const int64_t p : positions) {
      ASSERT_EQ(PhaseOf({p, 0}, f), ExactPhase({p, 0}, f))
          << p << " " << f.whole << " " << f.fraction;
    }
  }
}

// So it is too low by less than one unit of 2^-64 turns.
TEST(PhaseOfTest, RoundsDownForRealPositions) {
  std::mt19937_64 random(2);
  for (const Frequency f : SomeFrequencies(random)) {
    for (int i = 0; i < 100; ++i) {
      const Position p = {static_cast<int64_t>(random()) >> (i % 64), random()};
      ASSERT_EQ(PhaseOf(p, f), ExactPhase(p, f)) << p.whole << " " << p.fraction;
    }
  }
}

TEST(PhaseOfTest, CancelsWhenAKeyMovesThereAndBack) {
  std::mt19937_64 random(3);
  for (const Frequency f : SomeFrequencies(random)) {
    const Position p = {static_cast<int64_t>(random()), 0};
    const Position q = {static_cast<int64_t>(random()), 0};
    const uint64_t there = PhaseOf(q, f) - PhaseOf(p, f);
    const uint64_t back = PhaseOf(p, f) - PhaseOf(q, f);
    EXPECT_EQ(there + back, 0u);
  }
}

TEST(PhaseOfTest, DependsOnTheDifferenceOfIntegerPositionsAlone) {
  std::mt19937_64 random(4);
  for (const Frequency f : SomeFrequencies(random)) {
    const int64_t m = static_cast<int64_t>(random()) >> 4;
    const int64_t n = static_cast<int64_t>(random()) >> 4;
    const int64_t shift = static_cast<int64_t>(random()) >> 4;
    EXPECT_EQ(PhaseOf({m, 0}, f) - PhaseOf({n, 0}, f),
              PhaseOf({m + shift, 0}, f) - PhaseOf({n + shift, 0}, f));
    EXPECT_EQ(PhaseOf({m, 0}, f) - PhaseOf({n, 0}, f), PhaseOf({m - n, 0}, f));
  }
}

TEST(PhaseOfTest, WrapsAtWholeTurns) {
  EXPECT_EQ(PhaseOf({4, 0}, {0, uint64_t{1} << 62}), 0u);
  EXPECT_EQ(PhaseOf({1000, 0}, {250, 0}), 0u);
  EXPECT_EQ(PhaseOf({0, uint64_t{1} << 63}, {3, 0}), uint64_t{1} << 63);
  EXPECT_EQ(PhaseOf({-1, 0}, {0, uint64_t{1} << 62}), uint64_t{3} << 62);
}

TEST(MulHighTest, IsTheUpperHalfOfTheProduct) {
  EXPECT_EQ(MulHigh(~0ull, ~0ull), ~0ull - 1);
  EXPECT_EQ(MulHigh(uint64_t{1} << 63, 2), 1u);
  EXPECT_EQ(MulHigh(0, ~0ull), 0u);
}

}  // namespace
}  // namespace phasor
