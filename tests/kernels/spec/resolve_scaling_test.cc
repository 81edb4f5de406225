// SPDX-License-Identifier: Apache-2.0
// rope_scaling and xpos: defaults, canonical values, and every error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/spec/spec.h"
#include "tests/support/specs.h"

namespace phasor {
namespace {

using testing::ExpectInvalid;
using testing::Resolve;
using testing::Rotary;
using testing::With;

using testing::kNan;

Spec Scaled(RopeScaling scaling) { return With(Rotary(8), &Spec::rope_scaling, scaling); }

template <typename T>
T Rule(const Spec& spec) {
  const ResolvedSpec resolved = Resolve(spec);
  EXPECT_TRUE(std::holds_alternative<T>(resolved.rope_scaling));
  return std::get<T>(resolved.rope_scaling);
}

TEST(ResolveScalingTest, AFactorOfOneIsNoScaling) {
  const ResolvedSpec plain = Resolve(Rotary(8));
  EXPECT_EQ(Resolve(Scaled(LinearScaling{1.0})), plain);
  EXPECT_EQ(Resolve(Scaled(NtkScaling{.factor = 1.0})), plain);
  EXPECT_EQ(Resolve(Scaled(MixedNtkScaling{.factor = 1.0})), plain);
  EXPECT_EQ(Resolve(Scaled(Llama3Scaling{1.0, 1.0, 4.0, 8192})), plain);
}

TEST(ResolveScalingTest, RefusesFactorsThatAreNotPositive) {
  for (const double bad : {0.0, -1.0, kNan, HUGE_VAL}) {
    ExpectInvalid(Scaled(LinearScaling{bad}), "rope_scaling.linear.factor: ");
    ExpectInvalid(Scaled(NtkScaling{bad}), "rope_scaling.ntk.factor: ");
    ExpectInvalid(Scaled(MixedNtkScaling{bad}), "rope_scaling.mixed_ntk.factor: ");
    ExpectInvalid(Scaled(YarnScaling{bad, 4096}), "rope_scaling.yarn.factor: ");
    ExpectInvalid(Scaled(Llama3Scaling{bad, 1.0, 4.0, 8192}), "rope_scaling.llama3.factor: ");
  }
  ExpectInvalid(Scaled(LinearScaling{}), "rope_scaling.linear.factor: not set");
}

TEST(ResolveScalingTest, RefusesAMissingOriginalLength) {
  const std::string field = ".original_max_position_embeddings: ";
  ExpectInvalid(Scaled(YarnScaling{.factor = 2.0}), "rope_scaling.yarn" + field + "not set");
  ExpectInvalid(Scaled(YarnScaling{.factor = 2.0, .original_max_position_embeddings = 0}),
                "rope_scaling.yarn" + field + "0; must be at least 1");
  ExpectInvalid(Scaled(Llama3Scaling{8.0, 1.0, 4.0, {}}), "rope_scaling.llama3" + field);
  ExpectInvalid(Scaled(NtkScaling{.factor = 2.0, .dynamic = true}), "rope_scaling.ntk" + field);
  ExpectInvalid(Scaled(LongRopeScaling{}), "rope_scaling.longrope" + field);
  ExpectInvalid(Scaled(NtkScaling{.factor = 2.0, .original_max_position_embeddings = 4096}),
                "rope_scaling.ntk" + field + "has no meaning unless dynamic");
}

TEST(ResolveScalingTest, LengthRulesNeedALengthAndOthersRefuseIt) {
  Spec dynamic =
      Scaled(NtkScaling{.factor = 2.0, .dynamic = true, .original_max_position_embeddings = 4096});
  ExpectInvalid(dynamic, "sequence_length: not set; must be given for rope_scaling.ntk");
  ExpectInvalid(With(dynamic, &Spec::sequence_length, 0), "sequence_length: 0; must be > 0");
  EXPECT_EQ(Resolve(With(dynamic, &Spec::sequence_length, 9000)).sequence_length, 9000);
  EXPECT_EQ(Resolve(With(dynamic, &Spec::sequence_length, 1)),
            Resolve(With(dynamic, &Spec::sequence_length, 4096)));
  ExpectInvalid(With(Rotary(8), &Spec::sequence_length, 1), "sequence_length: has no meaning");
  ExpectInvalid(With(Scaled(LinearScaling{2.0}), &Spec::sequence_length, 1),
                "sequence_length: has no meaning");
}

LongRopeScaling Phi() {
  return {.short_factor = {1, 1, 1, 1},
          .long_factor = {1, 2, 3, 4},
          .original_max_position_embeddings = 4096,
          .factor = 32.0};
}

TEST(ResolveScalingTest, LongRopeLengthsOfTheSameSideAreTheSame) {
  const auto at = [](int64_t length) {
    return Resolve(With(Scaled(Phi()), &Spec::sequence_length, length));
  };
  EXPECT_EQ(at(1), at(4096));
  EXPECT_EQ(at(4097), at(131072));
  EXPECT_NE(at(4096), at(4097));
}

TEST(ResolveScalingTest, RefusesLongRopeListsOfAnotherLength) {
  LongRopeScaling phi = Phi();
  phi.short_factor.pop_back();
  const auto expect = [](const LongRopeScaling& rule, const std::string& start) {
    ExpectInvalid(With(Scaled(rule), &Spec::sequence_length, 1), "rope_scaling.longrope." + start);
  };
  expect(phi, "short_factor: 3 values; must be 4");
  phi.short_factor.clear();
  expect(phi, "short_factor: not set");
  phi = Phi();
  phi.long_factor[2] = 0;
  expect(phi, "long_factor[2]: 0; must be finite and > 0");
  phi = Phi();
  phi.factor.reset();
  expect(phi, "factor: not set");
  phi.short_mscale = 1;
  expect(phi, "factor: not set");
  phi.long_mscale = 1;
  Resolve(With(Scaled(phi), &Spec::sequence_length, 1));
  phi.original_max_position_embeddings = 1;
  expect(phi, "original_max_position_embeddings: 1; must be at least 2");
}

TEST(ResolveScalingTest, FillsInYarnsDefaults) {
  const auto yarn = Rule<YarnScaling>(Scaled(YarnScaling{2.0, 4096}));
  EXPECT_EQ(yarn.beta_fast, 32);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_EQ(yarn.truncate, true);
  EXPECT_EQ(yarn.extrapolation_factor, 1);
  EXPECT_EQ(yarn.attn_factor, 1);
  EXPECT_EQ(yarn.mscale_coefficient, 0.1);
  EXPECT_EQ(yarn.log_interpolation, false);
}

TEST(ResolveScalingTest, DropsYarnsFieldsThatAGivenAmplitudeReplaces) {
  YarnScaling yarn = {.factor = 2.0, .original_max_position_embeddings = 4096};
  yarn.attention_factor = 1;
  const ResolvedSpec plain = Resolve(Scaled(yarn));
  yarn.mscale = 0.5;
  yarn.attn_factor = 7;
  EXPECT_EQ(Resolve(Scaled(yarn)), plain);
}

TEST(ResolveScalingTest, RefusesYarnFieldsOutOfRange) {
  YarnScaling yarn = {.factor = 2.0, .original_max_position_embeddings = 4096};
  const auto expect = [&](std::optional<double> YarnScaling::*field, const std::string& start) {
    for (const double bad : {kNan, HUGE_VAL}) {
      YarnScaling wrong = yarn;
      wrong.*field = bad;
      ExpectInvalid(Scaled(wrong), "rope_scaling.yarn." + start);
    }
  };
  expect(&YarnScaling::beta_fast, "beta_fast: ");
  expect(&YarnScaling::beta_slow, "beta_slow: ");
  expect(&YarnScaling::attention_factor, "attention_factor: ");
  expect(&YarnScaling::mscale, "mscale: ");
  expect(&YarnScaling::mscale_all_dim, "mscale_all_dim: ");
  expect(&YarnScaling::extrapolation_factor, "extrapolation_factor: ");
  expect(&YarnScaling::attn_factor, "attn_factor: ");
  expect(&YarnScaling::mscale_coefficient, "mscale_coefficient: ");
  yarn.beta_slow = 0;
  ExpectInvalid(Scaled(yarn), "rope_scaling.yarn.beta_slow: 0; must be finite and > 0");
  ExpectInvalid(With(Scaled(YarnScaling{2.0, 4096}), &Spec::rope_theta, 1.0), "rope_theta: 1, ");
}

TEST(ResolveScalingTest, Llama3WithoutARampIsAStep) {
  YarnScaling step{.factor = 16, .original_max_position_embeddings = 8192};
  step.beta_fast = step.beta_slow = step.attention_factor = 1;
  EXPECT_EQ(Resolve(Scaled(Llama3Scaling{16.0, 1.0, 1.0, 8192})), Resolve(Scaled(step)));
  EXPECT_EQ(Resolve(Scaled(Llama3Scaling{1.0, 4.0, 4.0, 8192})), Resolve(Rotary(8)));
}

// The boundary of YaRN would be clamped to a pair there.
TEST(ResolveScalingTest, AStepBesideAllPairsDividesAllOrNone) {
  const auto scaled = [](double theta, Llama3Scaling llama3) {
    Spec spec = With(Rotary(64), &Spec::rope_theta, theta);
    spec.rope_scaling = llama3;
    return Resolve(spec).rope_scaling;
  };
  EXPECT_EQ(scaled(100, {8.0, 1.0, 1.0, 131072}), RopeScaling());
  EXPECT_EQ(scaled(1e4, {8.0, 4.0, 4.0, 16}), RopeScaling(LinearScaling{8.0}));
  EXPECT_EQ(scaled(1e4, {8.0, 1.0, 1.0, 6}), RopeScaling(LinearScaling{8.0}));        // pair -0.16
  EXPECT_TRUE(std::holds_alternative<YarnScaling>(scaled(1e4, {8.0, 1.0, 1.0, 7})));  // pair 0.38
}

TEST(ResolveScalingTest, RefusesALlama3RampThatFalls) {
  ExpectInvalid(Scaled(Llama3Scaling{8.0, 4.0, 2.0, 8192}),
                "rope_scaling.llama3.high_freq_factor: 2; must be at least low_freq_factor (4)");
  ExpectInvalid(Scaled(Llama3Scaling{8.0, 0.0, 4.0, 8192}),
                "rope_scaling.llama3.low_freq_factor: 0");
  const Spec step = Scaled(Llama3Scaling{8.0, 4.0, 4.0, 8192});
  ExpectInvalid(With(step, &Spec::rope_theta, 1),
                "rope_theta: 1; must be above 1 where rope_scaling.llama3 has equal factors");
  ExpectInvalid(With(step, &Spec::frequency_unit, FrequencyUnit::kTurns),
                "rope_scaling.llama3: has no meaning for frequency_unit TURNS");
}

TEST(ResolveScalingTest, RefusesRulesThatDoNotFitTheFrequencies) {
  Spec range = With(Scaled(YarnScaling{2.0, 4096}), &Spec::family, FrequencyFamily::kLinear);
  range.min_freq = range.max_freq = 1;
  ExpectInvalid(range, "rope_scaling.yarn: has no meaning for family LINEAR; must be GEOMETRIC");
  ExpectInvalid(With(Scaled(NtkScaling{2.0}), &Spec::frequency_unit, FrequencyUnit::kTurns),
                "rope_scaling.ntk: has no meaning for frequency_unit TURNS");
  ExpectInvalid(With(Scaled(NtkScaling{2.0}), &Spec::head_dim, 2), "rope_scaling.ntk: has the exp");
  ExpectInvalid(With(Scaled(YarnScaling{2.0, 4096}), &Spec::axes, 2),
                "rope_scaling: axis_rule AXIAL has a ladder per axis");
  Resolve(With(Scaled(LinearScaling{2.0}), &Spec::axes, 2));
  Spec heads =
      With(Scaled(Llama3Scaling{8.0, 1.0, 4.0, 8192}), &Spec::family, FrequencyFamily::kExplicit);
  heads.inv_freq.assign(8, 1);
  heads.frequency_heads = 2;
  ExpectInvalid(heads, "rope_scaling: frequency_heads 2");
}

TEST(ResolveScalingTest, BoundsRulesThatTakeAPowerPerPair) {
  ExpectInvalid(With(Scaled(MixedNtkScaling{2.0, 0.5}), &Spec::head_dim, 8194),
                "rope_scaling.mixed_ntk.b: ");
  YarnScaling yarn = {.factor = 2.0, .original_max_position_embeddings = 4096};
  yarn.log_interpolation = true;
  ExpectInvalid(With(Scaled(yarn), &Spec::head_dim, 8194), "rope_scaling.yarn.log_interpolation: ");
}

TEST(ResolveXposTest, FillsInDefaults) {
  EXPECT_EQ(Resolve(With(Rotary(8), &Spec::xpos, XposScaling{})).xpos,
            (XposScaling{512.0, 0.0, false}));
}

TEST(ResolveXposTest, RefusesWhatIsOutOfRange) {
  ExpectInvalid(With(Rotary(8), &Spec::xpos, XposScaling{1.5}), "xpos.scale_base: 1.5; must be at");
  ExpectInvalid(With(Rotary(8), &Spec::xpos, XposScaling{kNan}), "xpos.scale_base: nan");
  ExpectInvalid(With(Rotary(8), &Spec::xpos, XposScaling{512.0, 0x1p63}), "xpos.center: 9.2");
  ExpectInvalid(With(With(Rotary(8), &Spec::xpos, XposScaling{}), &Spec::axes, 2),
                "xpos: set for 2 axes; must have one axis");
}

}  // namespace
}  // namespace phasor
