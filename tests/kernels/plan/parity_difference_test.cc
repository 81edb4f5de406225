// SPDX-License-Identifier: Apache-2.0
// The positions that a comparison examines, and differences of known size.
#include "kernels/plan/parity_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/specs.h"

namespace phasor::parity {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Lt;

std::shared_ptr<const Plan> PlanOf(ParityFrequency frequency, double theta, ParityType angle) {
  Spec spec = testing::Rotary(128);
  spec.rope_theta = theta;
  spec.precision = Precision::kParity;
  spec.parity = ParityArithmetic{frequency, {}, {}, angle, ParityType::kModel, ParityType::kModel};
  auto plan = CompilePlan(testing::Resolve(spec));
  EXPECT_THAT(plan, testing::IsOk());
  return *plan;
}

Difference Up(const std::shared_ptr<const Plan>& plan, int64_t length, Dtype model) {
  return LargestDifference(*plan, SampledPositions(length, MostPositions(*plan)), model);
}

TEST(ParityDifferenceTest, EveryPositionOfAShortContextIsLookedAt) {
  EXPECT_EQ(SampledPositions(1, 4096), (std::vector<int64_t>{0}));
  EXPECT_EQ(SampledPositions(4096, 4096).size(), 4096u);
}

TEST(ParityDifferenceTest, LongContextsAreSampledUpToTheirLastPosition) {
  const std::vector<int64_t> positions = SampledPositions(131072, 8192);
  EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
  EXPECT_THAT(positions, Contains(131071));
  EXPECT_THAT(positions, Contains(65536));
  EXPECT_THAT(positions, Each(Lt(131072)));
}

TEST(ParityDifferenceTest, ManyPairsAreLookedAtInFewPositions) {
  EXPECT_EQ(SampledPositions(100, 4), (std::vector<int64_t>{24, 49, 74, 99}));
  const std::vector<int64_t> few = SampledPositions(int64_t{1} << 62, 16);
  EXPECT_EQ(few.size(), 16u);
  EXPECT_EQ(few.back(), (int64_t{1} << 62) - 1);
  const auto plan = PlanOf(ParityFrequency::kFloat32Pow, 10000, ParityType::kFloat32);
  EXPECT_EQ(MostPositions(*plan), 8192);
}

// With base 10000 and 128 lanes, f32 angles are off by 1.4e-4 at position 4095 and by thousandths
// of a radian at 131 071; ggml's recurrence by about three times as much. (From emulation against
// 64-bit arithmetic with another libm.)
TEST(ParityDifferenceTest, F32AnglesAreOffByWhatIsKnown) {
  const auto f32 = PlanOf(ParityFrequency::kFloat32Pow, 10000, ParityType::kFloat32);
  const Difference near = Up(f32, 4096, Dtype::kFloat32);
  EXPECT_GT(near.angle, 0.7e-4);
  EXPECT_LT(near.angle, 2.8e-4);
  EXPECT_GT(near.angle_position, 2048);
  EXPECT_LE(near.value, near.angle + 0x1p-23);
  const Difference far = Up(f32, 131072, Dtype::kFloat32);
  EXPECT_GT(far.angle, 2e-3);
  EXPECT_LT(far.angle, 1e-2);
  const auto ggml = PlanOf(ParityFrequency::kGgml, 10000, ParityType::kFloat32);
  EXPECT_GT(Up(ggml, 4096, Dtype::kFloat32).angle, 1.5 * near.angle);
}

TEST(ParityDifferenceTest, Float64AnglesDifferByNextToNothing) {
  const auto f64 = PlanOf(ParityFrequency::kFloat64, 10000, ParityType::kFloat64);
  const Difference far = Up(f64, 131072, Dtype::kFloat64);
  EXPECT_LT(far.angle, 131072 * 0x1p-51);
  EXPECT_LT(far.value, 131072 * 0x1p-51);
}

TEST(ParityDifferenceTest, TablesInBfloat16AreOffByTheirRounding) {
  const auto f32 = PlanOf(ParityFrequency::kFloat32Pow, 10000, ParityType::kFloat32);
  const Difference near = Up(f32, 4096, Dtype::kBFloat16);
  EXPECT_GT(near.value, 0x1p-9 * 0.9);
  EXPECT_LT(near.value, 0x1p-9 + 3e-4);
}

}  // namespace
}  // namespace phasor::parity
