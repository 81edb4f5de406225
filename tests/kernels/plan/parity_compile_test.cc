// SPDX-License-Identifier: Apache-2.0
// Which pair gets which frequency in parity tables, compared with the machine's f32 steps.
#include "kernels/plan/parity_compile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/specs.h"

namespace phasor::parity {
namespace {

using testing::Encoding;
using testing::PresetSpec;
using testing::Rotary;
using testing::With;

ParityTables TablesOf(Spec spec, ParityFrequency frequency = ParityFrequency::kFloat32Pow) {
  spec.precision = Precision::kParity;
  spec.parity = ParityArithmetic{
      frequency, {}, {}, ParityType::kFloat32, ParityType::kModel, ParityType::kModel};
  const auto plan = CompilePlan(testing::Resolve(spec));
  EXPECT_THAT(plan, testing::IsOk());
  return plan.ok() ? *(*plan)->parity : ParityTables();
}

double Step(int64_t j, int64_t pairs) {
  return 1.0f / powf(10000.0f, static_cast<float>(j) / static_cast<float>(pairs));
}

TEST(ParityCompileTest, ExactPlansHaveNoParityTables) {
  const auto plan = CompilePlan(testing::Resolve(Rotary(8)));
  ASSERT_THAT(plan, testing::IsOk());
  EXPECT_FALSE((*plan)->parity.has_value());
}

TEST(ParityCompileTest, BlocksOfAxesRestartTheLadder) {
  Spec spec = Rotary(12);
  spec.axes_dim = {4, 8};
  const ParityTables tables = TablesOf(spec);
  ASSERT_EQ(tables.frequency.size(), 6u);
  for (int j = 0; j < 2; ++j) EXPECT_NEAR(tables.frequency[j], Step(j, 2), 1e-8);
  for (int j = 0; j < 4; ++j) EXPECT_NEAR(tables.frequency[2 + j], Step(j, 4), 1e-8);
}

TEST(ParityCompileTest, PairsThatPadABlockStandStill) {
  Spec spec = PresetSpec("grid-2d-concat");
  spec.dim = 12;
  const ParityTables tables = TablesOf(spec);
  ASSERT_EQ(tables.frequency.size(), 7u);  // three pairs, one for padding, three pairs
  EXPECT_EQ(tables.frequency[3], 0);
  EXPECT_EQ(tables.frequency[4], 1);
}

TEST(ParityCompileTest, ElementsWithOddIndicesAreCosines) {
  const ParityTables tables = TablesOf(With(PresetSpec("transformer-literal"), &Spec::dim, 4));
  EXPECT_EQ(tables.cosine, (std::vector<uint8_t>{0, 1, 0, 1}));
  EXPECT_NEAR(tables.frequency[1], 0.01, 1e-9);
}

TEST(ParityCompileTest, PositionScaleIsAStageOfItsOwn) {
  const ParityTables tables = TablesOf(With(Encoding(4), &Spec::position_scale, 1000.0));
  EXPECT_EQ(tables.scale, (std::vector<double>{1000, 1000}));
  EXPECT_EQ(tables.frequency[0], 1);
}

TEST(ParityCompileTest, OtherFamiliesRoundTheirExactFrequencies) {
  Spec spec = testing::Flow(4);
  const ParityTables tables = TablesOf(spec, ParityFrequency::kFloat64);
  EXPECT_DOUBLE_EQ(tables.frequency[0], 2 * M_PI / 0.004);
  EXPECT_DOUBLE_EQ(tables.frequency[1], 2 * M_PI / 4);
}

TEST(ParityCompileTest, ScalingRulesAreSteps) {
  const ParityTables tables =
      TablesOf(With(Rotary(8), &Spec::rope_scaling, LinearScaling{.factor = 3}));
  for (int j = 0; j < 4; ++j) {
    const float want = static_cast<float>(Step(j, 4)) / 3.0f;
    EXPECT_NEAR(tables.frequency[j], want, 2e-8) << j;
  }
}

TEST(ParityCompileTest, AxesThatShareALadderDoNotRestartIt) {
  Spec spec = Rotary(16);
  spec.axes = 3;
  spec.axis_rule = AxisRule::kMropeChunked;
  spec.mrope_section = {2, 3, 3};
  const ParityTables tables = TablesOf(spec);
  ASSERT_EQ(tables.frequency.size(), 8u);
  for (int j = 0; j < 8; ++j) EXPECT_NEAR(tables.frequency[j], Step(j, 8), 1e-7) << j;
}

TEST(ParityCompileTest, ListedFrequenciesInTurnsMultiplyTheAngle) {
  Spec spec;
  spec.kind = SpecKind::kEncoding;
  spec.dim = 4;
  spec.family = FrequencyFamily::kExplicit;
  spec.inv_freq = {0.1, -7};
  spec.phase = {0.25, 0};
  spec.frequency_unit = FrequencyUnit::kTurns;
  spec.order = TrigOrder::kSinCos;
  spec.arrangement = Arrangement::kConcatenated;
  const ParityTables tables = TablesOf(spec);
  const double two_pi = static_cast<float>(2 * M_PI);
  EXPECT_EQ(tables.frequency, (std::vector<double>{0.1f, -7}));
  EXPECT_EQ(tables.scale, (std::vector<double>{two_pi, two_pi}));
  EXPECT_EQ(tables.phase, (std::vector<double>{static_cast<float>(M_PI / 2), 0}));
}

TEST(ParityCompileTest, PairsBeyondTheLiveOnesStandStill) {
  const ParityTables tables = TablesOf(With(Rotary(8), &Spec::live_pairs, 2));
  EXPECT_GT(tables.frequency[1], 0);
  EXPECT_EQ(tables.frequency[2], 0);
  EXPECT_EQ(tables.frequency[3], 0);
}

TEST(ParityCompileTest, GgmlRestartsWithEveryAxis) {
  Spec spec = Rotary(8);
  spec.axes_dim = {4, 4};
  const ParityTables tables = TablesOf(spec, ParityFrequency::kGgml);
  ASSERT_EQ(tables.ggml.size(), 4u);
  EXPECT_TRUE(tables.ggml[0].restart);
  EXPECT_FALSE(tables.ggml[1].restart);
  EXPECT_TRUE(tables.ggml[2].restart);
  EXPECT_EQ(tables.ggml[0].step, 0.01f);
}

}  // namespace
}  // namespace phasor::parity
