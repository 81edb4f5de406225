// SPDX-License-Identifier: Apache-2.0
// Angles, sines and cosines in an upstream's arithmetic, rounding by rounding.
#include "kernels/plan/parity/angles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace phasor::parity {
namespace {

std::vector<double> Angles(const ParityTables& tables, const std::vector<uint8_t>& axis,
                           const std::vector<Position>& p, size_t pairs) {
  std::vector<double> angles(pairs);
  TokenAngles(tables, axis, p.data(), absl::MakeSpan(angles));
  return angles;
}

ParityTables F32(std::vector<double> frequency) {
  ParityTables tables;
  tables.frequency = std::move(frequency);
  return tables;
}

// Compares with the machine's f32 product.
TEST(AnglesTest, AnglesAreF32ProductsOfF32Positions) {
  const float frequency = 0.7498942f;
  for (const int64_t position : {1, 3, 131071, 16777217, 123456789}) {
    const float want = static_cast<float>(position) * frequency;
    EXPECT_EQ(Angles(F32({frequency}), {0}, {{position, 0}}, 1)[0], static_cast<double>(want));
  }
}

TEST(AnglesTest, NegativeAndRealPositionsAreRoundedToNearest) {
  const std::vector<double> minus_a_quarter = Angles(F32({1}), {0}, {{-1, 3ull << 62}}, 1);
  EXPECT_EQ(minus_a_quarter[0], -0.25);
  // 2^24 + 1 and a bit more than a half: the nearest f32 is 2^24 + 2.
  EXPECT_EQ(Angles(F32({1}), {0}, {{16777217, 1}}, 1)[0], 16777218.0);
  EXPECT_EQ(Angles(F32({1}), {0}, {{16777217, 0}}, 1)[0], 16777216.0);
}

TEST(AnglesTest, PositionsInBfloat16LoseTheirLastBits) {
  ParityTables tables = F32({1});
  tables.position = Dtype::kBFloat16;
  EXPECT_EQ(Angles(tables, {0}, {{257, 0}}, 1)[0], 256.0);
}

TEST(AnglesTest, ScaleComesAfterTheProduct) {
  ParityTables tables = F32({0.1f});
  tables.scale = {1000};
  const float want = 1000.0f * (0.3f * 0.1f);
  const double third = 0.3f;
  const Position p = {0, static_cast<uint64_t>(std::ldexp(third, 64))};
  EXPECT_EQ(Angles(tables, {0}, {p}, 1)[0], static_cast<double>(want));
}

TEST(AnglesTest, LayersAreAddedInOrderAndThePhaseLast) {
  ParityTables tables = F32({0.3f, 0.7f});
  tables.phase = {1.1f};
  const float want = (5 * 0.3f + 9 * 0.7f) + 1.1f;
  EXPECT_EQ(Angles(tables, {0, 1}, {{5, 0}, {9, 0}}, 1)[0], static_cast<double>(want));
}

TEST(AnglesTest, AmplitudeAndBiasAreRoundedInTheTypeOfTheAngle) {
  ParityTables tables;
  tables.cos_bias = -1;
  const double angles[] = {0.5};
  SinCos<double> v;
  TokenSinCos(tables, angles, 1.25f, &v);
  const auto sine = static_cast<float>(std::sin(0.5));
  const auto cosine = static_cast<float>(std::cos(0.5));
  EXPECT_EQ(v.sin, static_cast<double>(1.25f * sine));
  EXPECT_EQ(v.cos, static_cast<double>(1.25f * cosine - 1));
}

}  // namespace
}  // namespace phasor::parity
