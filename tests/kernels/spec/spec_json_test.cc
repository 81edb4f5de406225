// SPDX-License-Identifier: Apache-2.0
// Specs as JSON: fields, rules, round trips, and errors.
#include "kernels/spec/spec_json.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/spec/presets.h"
#include "tests/support/complete_preset.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::StartsWith;

TEST(SpecJsonTest, HoldsTheFieldsThatAreSet) {
  EXPECT_EQ(ToJson(Spec{}).dump(), "{}");
  Spec spec = {.preset = "p", .dim = 4};
  spec.order = TrigOrder::kSinCos;
  spec.axes_dim = {2, 2};
  EXPECT_EQ(ToJson(spec).dump(), R"({"preset":"p","dim":4,"axes_dim":[2,2],"order":"SIN_COS"})");
}

TEST(SpecJsonTest, NestsRulesUnderTheirNames) {
  Spec spec;
  spec.rope_scaling = YarnScaling{.factor = 4.0, .truncate = false};
  spec.xpos = XposScaling{.center = 8.0};
  EXPECT_EQ(ToJson(spec).dump(),
            R"({"rope_scaling":{"yarn":{"factor":4.0,"truncate":false}},"xpos":{"center":8.0}})");
}

TEST(SpecJsonTest, EveryTypeOfFieldSurvivesTheRoundTrip) {
  Spec spec = {.config_json = "{\"a\": 1}"};
  spec.kind = SpecKind::kRotary;
  spec.axes = 3;
  spec.head_dim = int64_t{1} << 40;
  spec.rope_theta = 0.1;
  spec.inv_freq = {1e-300, 0.30000000000000004};
  spec.axis_of_pair = {0, 1};
  spec.xpos = XposScaling{512.0, -1.5, true};
  spec.rope_scaling = LongRopeScaling{.short_factor = {1.0, 1.1}, .long_factor = {2.0, 3.0}};
  const auto back = SpecFromJson(ToJson(spec).dump());
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(*back, spec);
}

TEST(SpecJsonTest, EveryPresetSurvivesTheRoundTrip) {
  for (const Preset& preset : Presets()) {
    const auto back = SpecFromJson(ToJson(preset.spec).dump());
    ASSERT_THAT(back, IsOk()) << preset.name;
    EXPECT_EQ(*back, preset.spec) << preset.name;
  }
}

// What `phasor resolve --json` prints for a preset is a spec with the same meaning, so it gives the
// same bytes: a plan is made of the canonical value alone.
TEST(SpecJsonTest, ResolvedPresetsResolveToThemselves) {
  std::vector<Spec> specs = phasor::testing::SpecsOfEveryField();
  for (const Preset& preset : Presets()) specs.push_back(phasor::testing::Complete(preset));
  for (const Spec& spec : specs) {
    const ResolvedSpec resolved = phasor::testing::Resolve(spec);
    const auto back = SpecFromJson(ToJson(ToSpec(resolved)).dump(2));
    ASSERT_THAT(back, IsOk()) << spec.preset;
    EXPECT_TRUE(back->preset.empty());
    const ResolvedSpec again = phasor::testing::Resolve(*back);
    EXPECT_EQ(again, resolved) << spec.preset;
    EXPECT_EQ(Fingerprint(again), Fingerprint(resolved)) << spec.preset;
  }
}

TEST(SpecJsonTest, TakesTheSpecOutOfAnAnswerOfResolve) {
  const auto spec = SpecFromJson(R"({"spec": {"dim": 8}, "width": 8, "pairs": []})");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(*spec, Spec{.dim = 8});
}

void ExpectSpecRefused(const std::string& text, const std::string& message) {
  EXPECT_THAT(SpecFromJson(text), StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(message)))
      << text;
}

TEST(SpecJsonTest, RefusesKeysThatAreNoFields) {
  ExpectSpecRefused(R"({"theta": 1})", "spec.theta: no such field");
  ExpectSpecRefused(R"({"xpos": {"centre": 1}})", "spec.xpos.centre: no such field");
  ExpectSpecRefused(R"({"rope_scaling": {"su": {}}})", "spec.rope_scaling.su: no such field");
  ExpectSpecRefused(R"({"rope_scaling": {"linear": {"type": "linear"}}})",
                    "spec.rope_scaling.linear.type: no such field");
}

TEST(SpecJsonTest, RefusesValuesOfAnotherType) {
  ExpectSpecRefused("{", "spec: not JSON");
  ExpectSpecRefused("[]", "spec: []; must be an object");
  ExpectSpecRefused(R"({"dim": 8.5})", "spec.dim: 8.5; must be an integer");
  ExpectSpecRefused(R"({"dim": 9223372036854775808})", "spec.dim: 9223372036854775808; must be");
  ExpectSpecRefused(R"({"axes": 4294967297})", "spec.axes: 4294967297; must be an integer of 32");
  ExpectSpecRefused(R"({"rope_theta": null})", "spec.rope_theta: null; must be a number");
  ExpectSpecRefused(R"({"preset": 1})", "spec.preset: 1; must be a string");
  ExpectSpecRefused(R"({"axes_dim": [2, "2"]})", "spec.axes_dim[1]: \"2\"; must be an integer");
  ExpectSpecRefused(R"({"axes_dim": 2})", "spec.axes_dim: 2; must be a list");
  ExpectSpecRefused(R"({"pairing": "sideways"})",
                    "spec.pairing: \"sideways\"; must be one of HALF_SPLIT, INTERLEAVED");
  ExpectSpecRefused(
      R"({"pairing": "half_splt"})",
      "spec.pairing: \"half_splt\"; did you mean \"HALF_SPLIT\"? must be one of HALF_");
  ExpectSpecRefused(R"({"xpos": {"inverse": 1}})", "spec.xpos.inverse: 1; must be true or false");
  ExpectSpecRefused(R"({"rope_scaling": {}})", "spec.rope_scaling: {}; must be an object with one");
}

TEST(SpecJsonTest, ReadsSingleMessages) {
  const auto scaling = RopeScalingFromJson(R"({"linear": {"factor": 4}})");
  ASSERT_THAT(scaling, IsOk());
  EXPECT_EQ(*scaling, RopeScaling(LinearScaling{4.0}));
  const auto xpos = XposFromJson(R"({"center": 4})");
  ASSERT_THAT(xpos, IsOk());
  EXPECT_EQ(*xpos, XposScaling{.center = 4.0});
}

}  // namespace
}  // namespace phasor
