// SPDX-License-Identifier: Apache-2.0
// The recurrence of ggml, compared with a transcription of its C code.
#include "kernels/plan/parity/ggml.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/plan/parity/angles.h"

namespace phasor::parity {
namespace {

// From ggml/src/ggml.c and ggml-cpu/ops.cpp (MIT licence): ggml_rope_yarn_corr_dims,
// rope_yarn_ramp, rope_yarn and ggml_rope_cache_init, up to the angle.
struct Ggml {
  int n_dims = 128;
  float freq_base = 10000;
  float freq_scale = 1;
  float ext_factor = 0;
  int n_ctx_orig = 4096;
  float beta_fast = 32;
  float beta_slow = 1;
  const float* freq_factors = nullptr;

  float CorrDim(float n_rot) const {
    return static_cast<float>(n_dims) *
           logf(static_cast<float>(n_ctx_orig) / (n_rot * 2 * static_cast<float>(M_PI))) /
           (2 * logf(freq_base));
  }
  float RopeYarn(float theta_extrap, const float* corr_dims, int i0) const {
    const float theta_interp = freq_scale * theta_extrap;
    if (ext_factor == 0.0f) return theta_interp;
    const float y =
        (static_cast<float>(i0 / 2) - corr_dims[0]) / std::max(0.001f, corr_dims[1] - corr_dims[0]);
    const float ramp_mix = (1 - std::min(1.0f, std::max(0.0f, y))) * ext_factor;
    return theta_interp * (1 - ramp_mix) + theta_extrap * ramp_mix;
  }
  std::vector<float> Angles(float theta_base) const {
    const float corr_dims[2] = {
        std::max(0.0f, floorf(CorrDim(beta_fast))),
        std::min(static_cast<float>(n_dims - 1), ceilf(CorrDim(beta_slow)))};
    const float theta_scale = powf(freq_base, -2.0f / static_cast<float>(n_dims));
    std::vector<float> angles;
    float theta = theta_base;
    for (int i0 = 0; i0 < n_dims; i0 += 2) {
      const float ff = freq_factors != nullptr ? freq_factors[i0 / 2] : 1.0f;
      angles.push_back(RopeYarn(theta / ff, corr_dims, i0));
      theta *= theta_scale;
    }
    return angles;
  }
};

std::vector<double> OurAngles(const GeometricLadder& ladder, int64_t position) {
  const GgmlLadder made = GgmlPairs(ladder);
  ParityTables tables;
  tables.ggml = made.pairs;
  tables.ggml_scale = made.scale;
  tables.ggml_mixes = made.mixes;
  const std::vector<uint8_t> axis(made.pairs.size(), 0);
  std::vector<double> angles(made.pairs.size());
  const Position p = {position, 0};
  TokenAngles(tables, axis, &p, absl::MakeSpan(angles));
  return angles;
}

void ExpectSameAngles(const GeometricLadder& ladder, const Ggml& ggml) {
  for (const int64_t position : {0, 1, 2, 77, 4095, 4096, 131071, 1000003}) {
    const std::vector<float> want = ggml.Angles(static_cast<float>(position));
    const std::vector<double> got = OurAngles(ladder, position);
    ASSERT_EQ(got.size(), want.size());
    for (size_t j = 0; j < want.size(); ++j) {
      EXPECT_EQ(got[j], static_cast<double>(want[j])) << "position " << position << " pair " << j;
    }
  }
}

GeometricLadder Ladder(double theta, int64_t pairs) {
  GeometricLadder ladder;
  ladder.steps = ParityFrequency::kGgml;
  ladder.theta = theta;
  ladder.denominator = static_cast<double>(pairs);
  ladder.count = pairs;
  ladder.live = pairs;
  return ladder;
}

TEST(GgmlTest, PlainAnglesAreGgmlsBitForBit) {
  ExpectSameAngles(Ladder(10000, 64), {});
  ExpectSameAngles(Ladder(500000, 32), {.n_dims = 64, .freq_base = 500000});
}

TEST(GgmlTest, LinearScalingIsGgmlsFreqScale) {
  GeometricLadder ladder = Ladder(10000, 64);
  const RopeScaling scaling = LinearScaling{.factor = 3};
  ladder.scaling = &scaling;
  ExpectSameAngles(ladder, {.freq_scale = 1.0f / 3.0f});
}

TEST(GgmlTest, YarnMixesAsGgmlDoes) {
  GeometricLadder ladder = Ladder(1000000, 64);
  YarnScaling yarn;
  yarn.factor = 4;
  yarn.original_max_position_embeddings = 32768;
  yarn.beta_fast = 32;
  yarn.beta_slow = 1;
  yarn.truncate = true;
  yarn.extrapolation_factor = 1;
  yarn.log_interpolation = false;
  const RopeScaling scaling = yarn;
  ladder.scaling = &scaling;
  ExpectSameAngles(
      ladder, {.freq_base = 1000000, .freq_scale = 0.25f, .ext_factor = 1, .n_ctx_orig = 32768});
}

TEST(GgmlTest, LongRopeDividesAnglesByItsFactors) {
  GeometricLadder ladder = Ladder(10000, 48);
  LongRopeScaling rule;
  rule.original_max_position_embeddings = 4096;
  std::vector<float> factors;
  for (int j = 0; j < 48; ++j) {
    rule.short_factor.push_back(1);
    rule.long_factor.push_back(1 + 0.37 * j);
    factors.push_back(static_cast<float>(1 + 0.37 * j));
  }
  const RopeScaling scaling = rule;
  ladder.scaling = &scaling;
  ladder.sequence_length = 4097;
  ExpectSameAngles(ladder, {.n_dims = 96, .freq_factors = factors.data()});
}

// convert_hf_to_gguf.py writes 1 for fast pairs and the factor for slow ones.
TEST(GgmlTest, Llama3FactorsRunFromOneToTheFactor) {
  GeometricLadder ladder = Ladder(500000, 64);
  const RopeScaling scaling = Llama3Scaling{8, 1, 4, 8192};
  ladder.scaling = &scaling;
  const GgmlLadder made = GgmlPairs(ladder);
  EXPECT_EQ(made.pairs.front().factor, 1);
  EXPECT_EQ(made.pairs.back().factor, 8);
  for (size_t j = 1; j < made.pairs.size(); ++j) {
    EXPECT_GE(made.pairs[j].factor, made.pairs[j - 1].factor);
  }
}

}  // namespace
}  // namespace phasor::parity
