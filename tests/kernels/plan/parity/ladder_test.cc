// SPDX-License-Identifier: Apache-2.0
// The steps of upstream's frequencies, compared with the machine's f32 arithmetic and libm.
// tests/conformance has the values of the upstream packages themselves.
#include "kernels/plan/parity/ladder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace phasor::parity {
namespace {

GeometricLadder Ladder(ParityFrequency steps, double theta, double denominator, int64_t count) {
  GeometricLadder ladder;
  ladder.steps = steps;
  ladder.theta = theta;
  ladder.denominator = denominator;
  ladder.count = count;
  ladder.live = count;
  return ladder;
}

double Ulp(float x) { return std::nextafter(std::abs(x), INFINITY) - std::abs(x); }

TEST(LadderTest, PowStepsAreThoseOfF32) {
  const std::vector<double> got = Frequencies(Ladder(ParityFrequency::kFloat32Pow, 10000, 64, 64));
  for (int j = 0; j < 64; ++j) {
    const float want = 1.0f / powf(10000.0f, static_cast<float>(2 * j) / 128.0f);
    EXPECT_LE(std::abs(got[j] - want), Ulp(want)) << j;
  }
}

TEST(LadderTest, ExpStepsDivideBeforeOrAfterTheProduct) {
  const auto exp = Frequencies(Ladder(ParityFrequency::kFloat32Exp, 10000, 127, 128));
  const auto step = Frequencies(Ladder(ParityFrequency::kFloat32ExpStep, 10000, 127, 128));
  int differ = 0;
  for (int j = 0; j < 128; ++j) {
    const float index = static_cast<float>(j);
    const float quotient = static_cast<float>(-std::log(10000.0)) * index / 127.0f;
    const float product = index * static_cast<float>(-std::log(10000.0) / 127);
    EXPECT_LE(std::abs(exp[j] - expf(quotient)), Ulp(expf(quotient))) << j;
    EXPECT_LE(std::abs(step[j] - expf(product)), Ulp(expf(product))) << j;
    if (exp[j] != step[j]) ++differ;
  }
  EXPECT_GT(differ, 0);
}

TEST(LadderTest, Float64StepsAreThoseOfDouble) {
  const auto got = Frequencies(Ladder(ParityFrequency::kFloat64, 256, 28, 28));
  for (int j = 0; j < 28; ++j) {
    const double want = 1 / std::pow(256.0, j / 28.0);
    EXPECT_LE(std::abs(got[j] - want), 0x1p-52 * want) << j;
  }
}

TEST(LadderTest, PairsBeyondTheLiveOnesStandStill) {
  GeometricLadder ladder = Ladder(ParityFrequency::kFloat32Pow, 10000, 8, 8);
  ladder.live = 3;
  const auto got = Frequencies(ladder);
  EXPECT_GT(got[2], 0);
  for (int j = 3; j < 8; ++j) EXPECT_EQ(got[j], 0);
}

TEST(LadderTest, Llama3KeepsFastPairsAndDividesSlowOnes) {
  GeometricLadder ladder = Ladder(ParityFrequency::kFloat32Pow, 500000, 64, 64);
  const auto plain = Frequencies(ladder);
  const RopeScaling scaling = Llama3Scaling{8, 1, 4, 8192};
  ladder.scaling = &scaling;
  const auto scaled = Frequencies(ladder);
  EXPECT_EQ(scaled[0], plain[0]);
  EXPECT_EQ(scaled[63], plain[63] / 8);
}

TEST(LadderTest, DynamicNtkLeavesTheBaseUpToTheOriginalLength) {
  const RopeScaling scaling = NtkScaling{2, true, 2048};
  EXPECT_EQ(ScaledTheta(10000, 64, &scaling, 2048), 10000);
  const double theta = ScaledTheta(10000, 64, &scaling, 5000);
  EXPECT_NEAR(theta, 10000 * std::pow(2.0 * 5000 / 2048 - 1, 64.0 / 62), 0.01);
  EXPECT_EQ(theta, static_cast<float>(theta));
}

TEST(LadderTest, YarnsRangeIsRoundedToPairsWhereTruncated) {
  YarnScaling yarn;
  yarn.original_max_position_embeddings = 4096;
  yarn.beta_fast = 32;
  yarn.beta_slow = 1;
  yarn.truncate = false;
  const YarnRange exact = CorrectionRange(yarn, 150000, 64);
  EXPECT_NEAR(exact.low, 64 * std::log(4096 / (64 * M_PI)) / (2 * std::log(150000.0)), 1e-12);
  yarn.truncate = true;
  const YarnRange whole = CorrectionRange(yarn, 150000, 64);
  EXPECT_EQ(whole.low, std::floor(exact.low));
  EXPECT_EQ(whole.high, std::ceil(exact.high));
}

TEST(LadderTest, LongFactorsBeginBeyondTheOriginalLength) {
  LongRopeScaling rule;
  rule.short_factor = {1};
  rule.long_factor = {2};
  rule.original_max_position_embeddings = 4096;
  EXPECT_EQ(LongRopeFactors(rule, 4096)[0], 1);
  EXPECT_EQ(LongRopeFactors(rule, 4097)[0], 2);
}

}  // namespace
}  // namespace phasor::parity
