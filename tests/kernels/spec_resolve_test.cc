// SPDX-License-Identifier: Apache-2.0
// Resolution: overrides, defaults, canonical values, and every refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/hash/hash.h"
#include "kernels/spec.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::Encoding;
using testing::Flow;
using testing::PresetSpec;
using testing::Resolve;
using testing::Rotary;
using ::testing::StartsWith;
using testing::StatusIs;
using testing::With;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnbuilt = absl::StatusCode::kUnimplemented;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void ExpectInvalid(const Spec& spec, const std::string& start) {
  EXPECT_THAT(ResolveSpec(spec, "item.spec"), StatusIs(kInvalid, StartsWith("item.spec." + start)));
}

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

TEST(ResolveSpecTest, SplitsAxesEvenlyUnlessTold) {
  Spec grid = With(PresetSpec("grid-2d-concat"), &Spec::dim, 12);
  ExpectInvalid(With(grid, &Spec::dim, 10), "axes_dim[0]: 5, must be even");
  EXPECT_THAT(Resolve(grid).axes_dim, ElementsAre(6, 6));
  EXPECT_THAT(Resolve(With(grid, &Spec::axes_dim, {8, 4})).axes_dim, ElementsAre(8, 4));
  EXPECT_THAT(Resolve(With(PresetSpec("grid-2d-sum"), &Spec::dim, 12)).axes_dim,
              ElementsAre(12, 12));
  EXPECT_EQ(Resolve(With(Encoding(12), &Spec::axes_dim, {4, 4, 4})).axes, 3);
}

TEST(ResolveSpecTest, RefusesAxesThatDoNotAddUp) {
  const Spec grid = With(PresetSpec("grid-2d-concat"), &Spec::dim, 12);
  ExpectInvalid(With(grid, &Spec::axes_dim, {8, 8}), "axes_dim: sums to 16, must sum to 12 (dim)");
  ExpectInvalid(With(grid, &Spec::axes_dim, {6, 6, 0}),
                "axes_dim: 3 entries, must be as many as axes (2)");
  ExpectInvalid(With(grid, &Spec::axes_dim, {14, -2}), "axes_dim[0]: 14");
  ExpectInvalid(With(grid, &Spec::axes, 5), "axes: more than 4 axes");
  ExpectInvalid(With(grid, &Spec::axes, 0), "axes: 0 axes");
  ExpectInvalid(With(Encoding(12), &Spec::axes_dim, {2, 2, 2, 2, 2, 2}),
                "axes_dim: more than 4 axes");
  ExpectInvalid(With(With(PresetSpec("grid-2d-sum"), &Spec::dim, 12), &Spec::axes_dim, {6, 6}),
                "axes_dim[0]: 6, must be 12 for grouping SUM");
  ExpectInvalid(With(With(PresetSpec("rope-3d"), &Spec::head_dim, 128), &Spec::axes, 3),
                "axes_dim: not set");
  ExpectInvalid(With(PresetSpec("flux"), &Spec::axes_dim, {16, 56, 58}), "axes_dim: sums to 130");
}

TEST(ResolveSpecTest, PadsOddWidthsOnlyWhenAsked) {
  ExpectInvalid(Encoding(7), "dim: 7 is odd");
  const ResolvedSpec padded = Resolve(With(Encoding(7), &Spec::pad_back, 1));
  EXPECT_EQ(padded.pad_back, 1);
  EXPECT_THAT(padded.axes_dim, ElementsAre(6));
  EXPECT_EQ(Resolve(With(PresetSpec("timestep-cos-sin"), &Spec::dim, 7)).pad_back, 1);
  EXPECT_EQ(Resolve(With(PresetSpec("timestep-cos-sin"), &Spec::dim, 8)).pad_back, 0);
  ExpectInvalid(With(Encoding(8), &Spec::pad_back, 2), "pad_back: 2 is out of range");
  ExpectInvalid(With(Encoding(8), &Spec::pad_back, -1), "pad_back: -1 is out of range");
  ExpectInvalid(With(Encoding(1), &Spec::pad_back, 1), "dim: 1 leaves no room");
}

TEST(ResolveSpecTest, RefusesWidthsOutOfRange) {
  ExpectInvalid(Encoding(0), "dim: 0 is out of range, must be in [1, 65536]");
  ExpectInvalid(Encoding(-4), "dim: -4");
  ExpectInvalid(Encoding(65538), "dim: 65538");
  EXPECT_EQ(Resolve(Encoding(65536)).dim, 65536);
  ExpectInvalid(Rotary(1), "head_dim: 1 is out of range");
  ExpectInvalid(Rotary(65537), "head_dim: 65537 is out of range");
  ExpectInvalid(Rotary(63), "rotary_dim: 63 is odd, must be even");
}

TEST(ResolveSpecTest, PlacesThePartThatRotatesInsideTheHead) {
  Spec spec = With(Rotary(192), &Spec::rotary_begin, 128);
  ExpectInvalid(spec, "rotary_dim: 192 is out of range, must be in [2, 64]");
  spec.rotary_dim = 64;
  EXPECT_EQ(Resolve(spec).rotary_begin, 128);
  ExpectInvalid(With(spec, &Spec::rotary_dim, 63), "rotary_dim: 63 is odd");
  ExpectInvalid(With(spec, &Spec::rotary_dim, 66), "rotary_dim: 66 is out of range");
  ExpectInvalid(With(spec, &Spec::rotary_dim, 0), "rotary_dim: 0 is out of range");
  ExpectInvalid(With(spec, &Spec::rotary_begin, -2), "rotary_begin: -2 is out of range");
  ExpectInvalid(With(spec, &Spec::rotary_begin, 191), "rotary_begin: 191 is out of range");
  EXPECT_EQ(Resolve(With(With(Rotary(65), &Spec::rotary_dim, 64), &Spec::rotary_begin, 1)).head_dim,
            65);
}

TEST(ResolveSpecTest, TakesAPartialRotaryFactorInsteadOfRotaryDim) {
  EXPECT_EQ(Resolve(With(PresetSpec("gpt-neox"), &Spec::head_dim, 96)).rotary_dim, 24);
  EXPECT_EQ(Resolve(With(With(PresetSpec("gpt-neox"), &Spec::head_dim, 96), &Spec::rotary_dim, 48))
                .rotary_dim,
            48);
  EXPECT_EQ(Resolve(With(PresetSpec("gpt-j"), &Spec::partial_rotary_factor, 0.5)).rotary_dim, 128);
  ExpectInvalid(With(Rotary(10), &Spec::partial_rotary_factor, 0.5),
                "partial_rotary_factor: gives rotary_dim 5 is odd");
  for (const double bad : {0.0, -0.5, 1.01, kNan}) {
    ExpectInvalid(With(Rotary(64), &Spec::partial_rotary_factor, bad), "partial_rotary_factor: ");
  }
  ExpectInvalid(With(With(Rotary(64), &Spec::rotary_dim, 32), &Spec::partial_rotary_factor, 0.5),
                "partial_rotary_factor: set beside rotary_dim");
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

TEST(ResolveSpecTest, RefusesADenominatorOfZero) {
  ExpectInvalid(With(Encoding(8), &Spec::downscale_freq_shift, 4.0),
                "downscale_freq_shift: 4 is the number of pairs");
  EXPECT_EQ(Resolve(With(PresetSpec("ddpm-timestep"), &Spec::dim, 2)).downscale_freq_shift, 1);
}

TEST(ResolveSpecTest, RefusesFlowMatchingOverOddWidthsOrSeveralAxes) {
  ExpectInvalid(Flow(7), "dim: 7 is odd, must be even");
  ExpectInvalid(With(Flow(7), &Spec::pad_back, 1), "pad_back: has no meaning");
  ExpectInvalid(With(Flow(8), &Spec::axes, 2), "axes: 2, an encoding of family PERIODS takes 1");
}

TEST(ResolveSpecTest, RefusesFieldsThatWouldChangeNothing) {
  ExpectInvalid(With(Flow(8), &Spec::rope_theta, 1e4),
                "rope_theta: has no meaning for ENCODING specs of family PERIODS, must not be set");
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
  ExpectInvalid(With(Encoding(8), &Spec::axis_rule, AxisRule::kSingle),
                "axis_rule: has no meaning");
  ExpectInvalid(With(Encoding(8), &Spec::attention_factor, 1.0),
                "attention_factor: has no meaning");
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
}

TEST(ResolveSpecTest, RefusesContradictions) {
  ExpectInvalid(
      With(With(Encoding(8), &Spec::axes, 2), &Spec::grouping, AxisGrouping::kComponentMajor),
      "arrangement: INTERLEAVED, COMPONENT_MAJOR grouping takes CONCATENATED");
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

TEST(ResolveSpecTest, NamesTheFieldOfWhatIsNotBuiltYet) {
  const auto expect = [](const Spec& spec, const std::string& field) {
    EXPECT_THAT(ResolveSpec(spec, "s"), StatusIs(kUnbuilt, StartsWith("s." + field + ": ")));
  };
  expect(With(Spec{}, &Spec::config_json, "{}"), "config_json");
  expect(With(Rotary(8), &Spec::rope_scaling, LinearScaling{2}), "rope_scaling");
  expect(With(Rotary(8), &Spec::inv_freq, {1.0}), "inv_freq");
  expect(With(Rotary(8), &Spec::family, FrequencyFamily::kExplicit), "family");
  expect(With(Rotary(8), &Spec::family, FrequencyFamily::kLinear), "family");
  expect(With(Rotary(8), &Spec::family, FrequencyFamily::kLogRange), "family");
  expect(With(Rotary(8), &Spec::axis_rule, AxisRule::kMropeChunked), "axis_rule");
  expect(With(Rotary(8), &Spec::mrope_section, {2, 1, 1}), "mrope_section");
  expect(With(Rotary(8), &Spec::axis_of_pair, {0}), "axis_of_pair");
  expect(With(Encoding(8), &Spec::order, TrigOrder::kCosOnly), "order");
  expect(With(Rotary(8), &Spec::frequency_unit, FrequencyUnit::kTurns), "frequency_unit");
  expect(With(Rotary(8), &Spec::phase, {0, 0, 0, 0}), "phase");
  expect(With(Rotary(8), &Spec::min_freq, 1), "min_freq");
  expect(With(Rotary(8), &Spec::max_freq, 1), "max_freq");
  expect(With(Rotary(8), &Spec::live_pairs, 1), "live_pairs");
  expect(With(Rotary(8), &Spec::axes_theta, {1}), "axes_theta");
  expect(With(Rotary(8), &Spec::axes_position_scale, {1}), "axes_position_scale");
  expect(With(Rotary(8), &Spec::frequency_heads, 2), "frequency_heads");
  expect(With(Rotary(8), &Spec::sequence_length, 1), "sequence_length");
  expect(With(Encoding(8), &Spec::cos_bias, 0), "cos_bias");
  expect(With(Encoding(8), &Spec::pad_front, 0), "pad_front");
  expect(With(Encoding(8), &Spec::odd_dim, OddDim::kSplit), "odd_dim");
  expect(With(Rotary(8), &Spec::xpos, XposScaling{}), "xpos");
}

}  // namespace
}  // namespace phasor
