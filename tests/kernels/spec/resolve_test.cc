// SPDX-License-Identifier: Apache-2.0
// Resolution of specs: overrides, defaults, canonical values, and every error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "kernels/spec/spec.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::Encoding;
using testing::ExpectInvalid;
using testing::Flow;
using testing::IsOk;
using testing::PresetSpec;
using testing::Resolve;
using testing::Rotary;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::StatusIs;
using testing::With;

using testing::kNan;

TEST(ResolveSpecTest, FillsInWhatAPresetSays) {
  const ResolvedSpec encoding = Resolve(Encoding(64));
  EXPECT_EQ(encoding.kind, SpecKind::kEncoding);
  EXPECT_EQ(encoding.dim, 64);
  EXPECT_THAT(encoding.axes_dim, ElementsAre(64));
  EXPECT_EQ(encoding.rope_theta, 10000);
  EXPECT_EQ(encoding.arrangement, Arrangement::kInterleaved);
  const ResolvedSpec rotary = Resolve(Rotary(96));
  EXPECT_EQ(rotary.rotary_dim, 96);
  EXPECT_EQ(rotary.pairing_out, Pairing::kHalfSplit);
  EXPECT_EQ(rotary.attention_factor, 1);
}

// A thread remembers the last few specs that it resolved. That must not change any result.
TEST(ResolveSpecTest, SaysTheSameOfASpecThatComesAgain) {
  Spec config;
  config.config_json = R"({"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,
                           "rope_theta": 500000.0})";
  const std::vector<Spec> specs = {
      config,       With(config, &Spec::rope_theta, 1000.0),          Rotary(64), Encoding(64),
      Encoding(66), With(Encoding(64), &Spec::attention_factor, 0.5), Flow(64)};
  std::vector<std::string> first;
  for (const Spec& spec : specs) first.push_back(Fingerprint(Resolve(spec)));
  EXPECT_THAT(std::set<std::string>(first.begin(), first.end()), SizeIs(specs.size()));
  for (const int step : {1, 3, 5}) {  // another order each time
    for (size_t i = 0, at = 0; i < 4 * specs.size(); ++i, at = (at + step) % specs.size()) {
      EXPECT_EQ(Fingerprint(Resolve(specs[at])), first[at]) << at;
    }
  }
}

TEST(ResolveSpecTest, KeepsNoLargeSpecs) {
  const auto held = [] {
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
  };
  Spec spec = With(Rotary(65536), &Spec::family, FrequencyFamily::kExplicit);
  const int64_t before = held();
  for (int i = 0; i < 8; ++i) {
    spec.inv_freq.assign(32768, 1.0 + i);  // 256 KiB
    EXPECT_THAT(ResolveSpec(spec), IsOk());
  }
  if (before == 0) GTEST_SKIP() << "this allocator counts nothing";
  EXPECT_LT(held() - before, 400 << 10);  // the size of `spec` itself
}

TEST(ResolveSpecTest, RefusesAgainWhatItHasRefused) {
  const Spec wrong = With(Rotary(64), &Spec::rotary_dim, 65);
  for (const char* path : {"spec", "items[1].spec"}) {
    EXPECT_THAT(ResolveSpec(wrong, path), StatusIs(absl::StatusCode::kInvalidArgument,
                                                   StartsWith(absl::StrCat(path, ".rotary_dim"))));
  }
}

TEST(ResolveSpecTest, LetsTheCallerOverrideAPreset) {
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::rope_theta, 500.0)).rope_theta, 500);
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::order, TrigOrder::kCosSin)).order, TrigOrder::kCosSin);
  EXPECT_EQ(Resolve(With(Rotary(8), &Spec::pairing_out, Pairing::kInterleaved)).pairing_out,
            Pairing::kInterleaved);
  EXPECT_THAT(Resolve(With(PresetSpec("flux"), &Spec::axes_dim, {32, 32, 64})).axes_dim,
              ElementsAre(32, 32, 64));
}

TEST(ResolveSpecTest, DropsPresetFieldsThatAnotherFamilyDoesNotUse) {
  Spec spec = With(Encoding(8), &Spec::family, FrequencyFamily::kPeriods);
  spec.min_period = 1;
  spec.max_period = 2;
  const ResolvedSpec resolved = Resolve(spec);
  EXPECT_EQ(resolved.rope_theta, ResolvedSpec{}.rope_theta);
  EXPECT_EQ(resolved.max_period, 2);
}

TEST(ResolveSpecTest, WorksWithoutABaseWhenEveryFieldIsGiven) {
  Spec spec;
  ExpectInvalid(spec, "kind: not set");
  spec.kind = SpecKind::kEncoding;
  ExpectInvalid(spec, "family: not set");
  spec.family = FrequencyFamily::kGeometric;
  ExpectInvalid(spec, "rope_theta: not set");
  spec.rope_theta = 10000;
  ExpectInvalid(spec, "order: not set");
  spec.order = TrigOrder::kSinCos;
  ExpectInvalid(spec, "arrangement: not set");
  spec.arrangement = Arrangement::kInterleaved;
  ExpectInvalid(spec, "dim: not set");
  spec.dim = 64;
  EXPECT_EQ(Resolve(spec), Resolve(Encoding(64)));
}

TEST(ResolveSpecTest, WorksWithoutABaseForRotary) {
  Spec spec;
  spec.kind = SpecKind::kRotary;
  spec.family = FrequencyFamily::kGeometric;
  spec.rope_theta = 10000;
  ExpectInvalid(spec, "head_dim: not set");
  spec.head_dim = 64;
  ExpectInvalid(spec, "pairing: not set");
  spec.pairing = Pairing::kHalfSplit;
  EXPECT_EQ(Resolve(spec), Resolve(Rotary(64)));
}

TEST(ResolveSpecTest, GivesEqualMeaningsEqualValues) {
  const ResolvedSpec plain = Resolve(Encoding(8));
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::downscale_freq_shift, -0.0)), plain);
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::position_scale, 1.0)), plain);
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::grouping, AxisGrouping::kSum)), plain);
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::axes_dim, {8})), plain);
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::pad_back, 1)), plain);
  EXPECT_EQ(Resolve(With(Encoding(8), &Spec::precision, Precision::kExact)), plain);
  EXPECT_FALSE(
      std::signbit(Resolve(With(Encoding(8), &Spec::position_scale, -0.0)).position_scale));
  EXPECT_EQ(Resolve(With(Rotary(64), &Spec::partial_rotary_factor, 0.5)),
            Resolve(With(Rotary(64), &Spec::rotary_dim, 32)));
  EXPECT_EQ(absl::HashOf(plain), absl::HashOf(Resolve(With(Encoding(8), &Spec::axes, 1))));
}

TEST(ResolveSpecTest, RefusesNumbersThatAreNotPositiveOrFinite) {
  for (const double bad : {kNan, HUGE_VAL, 0.0, -1.0}) {
    ExpectInvalid(With(Encoding(8), &Spec::rope_theta, bad), "rope_theta: ");
    ExpectInvalid(With(Flow(8), &Spec::min_period, bad), "min_period: ");
    ExpectInvalid(With(Flow(8), &Spec::max_period, bad), "max_period: ");
  }
  for (const double bad : {kNan, HUGE_VAL, -HUGE_VAL}) {
    ExpectInvalid(With(Encoding(8), &Spec::position_scale, bad), "position_scale: ");
    ExpectInvalid(With(Encoding(8), &Spec::downscale_freq_shift, bad), "downscale_freq_shift: ");
    ExpectInvalid(With(Rotary(8), &Spec::attention_factor, bad), "attention_factor: ");
  }
}

TEST(ResolveSpecTest, RefusesFlowMatchingOverOddWidthsOrSeveralAxes) {
  ExpectInvalid(Flow(7), "dim: 7 is odd; must be even");
  ExpectInvalid(With(Flow(7), &Spec::pad_back, 1), "pad_back: has no meaning");
  ExpectInvalid(With(Flow(8), &Spec::axes, 2),
                "axes: 2; must be 1 for an encoding of family PERIODS");
}

TEST(ResolveSpecTest, RefusesFieldsThatWouldChangeNothing) {
  ExpectInvalid(With(Flow(8), &Spec::rope_theta, 1e4),
                "rope_theta: has no meaning for ENCODING specs of family PERIODS; must not be set");
  ExpectInvalid(With(Flow(8), &Spec::downscale_freq_shift, 1.0),
                "downscale_freq_shift: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::min_period, 1.0), "min_period: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::max_period, 1.0), "max_period: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::head_dim, 8), "head_dim: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::rotary_dim, 8), "rotary_dim: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::rotary_begin, 0), "rotary_begin: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::partial_rotary_factor, 1.0),
                "partial_rotary_factor: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::pairing, Pairing::kHalfSplit), "pairing: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::pairing_out, Pairing::kHalfSplit),
                "pairing_out: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::rope_scaling, LinearScaling{2}),
                "rope_scaling: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::xpos, XposScaling{}), "xpos: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::sequence_length, 8), "sequence_length: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::inv_freq, {1}), "inv_freq: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::min_freq, 1), "min_freq: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::max_freq, 1), "max_freq: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::frequency_heads, 1), "frequency_heads: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::frequency_heads, 1), "frequency_heads: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::pad_front, 0), "pad_front: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::cos_bias, 0), "cos_bias: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::odd_dim, OddDim::kPad), "odd_dim: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::dim, 8), "dim: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::order, TrigOrder::kSinCos), "order: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::arrangement, Arrangement::kInterleaved),
                "arrangement: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::grouping, AxisGrouping::kSum), "grouping: has no meaning");
  ExpectInvalid(With(Rotary(8), &Spec::pad_back, 0), "pad_back: has no meaning");
  const Spec literal = With(PresetSpec("transformer-literal"), &Spec::dim, 8);
  ExpectInvalid(With(literal, &Spec::order, TrigOrder::kSinCos), "order: has no meaning");
  ExpectInvalid(With(literal, &Spec::arrangement, Arrangement::kInterleaved),
                "arrangement: has no meaning");
  ExpectInvalid(With(literal, &Spec::downscale_freq_shift, 0.0),
                "downscale_freq_shift: has no meaning");
  ExpectInvalid(With(literal, &Spec::phase, {0, 0, 0, 0, 0, 0, 0, 0}), "phase: has no meaning");
  ExpectInvalid(With(literal, &Spec::live_pairs, 1), "live_pairs: has no meaning");
}

TEST(ResolveSpecTest, RefusesContradictions) {
  ExpectInvalid(
      With(With(Encoding(8), &Spec::axes, 2), &Spec::grouping, AxisGrouping::kComponentMajor),
      "arrangement: INTERLEAVED; COMPONENT_MAJOR grouping takes CONCATENATED");
  ExpectInvalid(With(Rotary(8), &Spec::family, FrequencyFamily::kPerElement),
                "family: PER_ELEMENT makes no pairs");
  ExpectInvalid(With(With(Rotary(8), &Spec::axes, 2), &Spec::axis_rule, AxisRule::kSingle),
                "axis_rule: SINGLE");
  const Spec literal = With(PresetSpec("transformer-literal"), &Spec::dim, 8);
  ExpectInvalid(With(literal, &Spec::grouping, AxisGrouping::kComponentMajor),
                "grouping: COMPONENT_MAJOR");
  ExpectInvalid(With(Encoding(8), &Spec::encoder, "mine"), "preset: more than one base");
}

TEST(ResolveSpecTest, DoesNotFindUnknownBases) {
  EXPECT_THAT(
      ResolveSpec(PresetSpec("lama")),
      StatusIs(absl::StatusCode::kNotFound, StartsWith("spec.preset: no preset named \"lama\"")));
  EXPECT_THAT(ResolveSpec(With(Spec{}, &Spec::encoder, "mine")),
              StatusIs(absl::StatusCode::kNotFound, StartsWith("spec.encoder: ")));
}

}  // namespace
}  // namespace phasor
