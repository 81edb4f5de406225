// SPDX-License-Identifier: Apache-2.0
// Every preset is complete once its required fields are set. tests/conformance compares their
// numbers with upstream packages, and conventions_test.cc with the examples of docs/conventions.md.
#include "kernels/spec/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/base/json.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/spec_json.h"
#include "tests/support/complete_preset.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

bool IsBuilt(const Spec& spec) {
  return ResolveSpec(spec).status().code() != absl::StatusCode::kUnimplemented;
}

TEST(PresetsTest, AreInAlphabeticalOrderWithDistinctNames) {
  const auto presets = Presets();
  ASSERT_GE(presets.size(), 99u);
  for (size_t i = 1; i < presets.size(); ++i) EXPECT_LT(presets[i - 1].name, presets[i].name);
}

TEST(PresetsTest, AreFoundByNameAndOnlyByName) {
  for (const Preset& preset : Presets()) EXPECT_EQ(FindPreset(preset.name), &preset);
  for (const char* name : {"", "Flux", "flu", "fluxx", "zzz", "\xff"})
    EXPECT_EQ(FindPreset(name), nullptr) << name;
}

TEST(PresetsTest, KeepTheNamesOfTheFirstRelease) {
  for (const char* name : {"big-vision-2d",
                           "ddpm-timestep",
                           "flow-periods",
                           "flow-periods-interleaved",
                           "flux",
                           "flux-2",
                           "gpt-j",
                           "gpt-neox",
                           "grid-2d-concat",
                           "grid-2d-sum",
                           "hunyuan-video",
                           "llama-2",
                           "llama-3",
                           "mae-2d",
                           "rope-2d",
                           "rope-3d",
                           "rope-half-split",
                           "rope-interleaved",
                           "tensor2tensor",
                           "timestep-cos-sin",
                           "timestep-sin-cos",
                           "timm-2d",
                           "transformer",
                           "transformer-literal",
                           "wan"}) {
    EXPECT_NE(FindPreset(name), nullptr) << name;
  }
}

TEST(PresetsTest, CompileOnceTheirRequiredFieldsAreSet) {
  std::vector<std::string> pending;
  for (const Preset& preset : Presets()) {
    const auto resolved = ResolveSpec(testing::Complete(preset));
    if (resolved.status().code() == absl::StatusCode::kUnimplemented) {
      pending.push_back(preset.name + ": " + std::string(resolved.status().message()));
      continue;
    }
    ASSERT_THAT(resolved, IsOk()) << preset.name;
    EXPECT_THAT(CompilePlan(*resolved), IsOk()) << preset.name;
  }
  for (const std::string& line : pending) std::cerr << "PENDING, NOT TESTED: " << line << "\n";
}

TEST(PresetsTest, RequireExactlyTheFieldsTheyList) {
  for (const Preset& preset : Presets()) {
    if (!IsBuilt(testing::Complete(preset))) continue;
    for (const std::string& field : preset.required_fields) {
      Spec spec = testing::Complete(preset);
      if (field == "dim") spec.dim.reset();
      if (field == "head_dim") spec.head_dim.reset();
      if (field == "sequence_length") spec.sequence_length.reset();
      if (field == "inv_freq") spec.inv_freq.clear();
      if (field == "phase") continue;  // without it, nothing is added
      if (field == "axes_dim") {
        spec.axes_dim.clear();
        spec.head_dim = 128;  // three pairs do not divide it
      }
      EXPECT_THAT(ResolveSpec(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)))
          << preset.name << " without " << field;
    }
  }
}

TEST(PresetsTest, SayWhatTheyAreAndWhereTheyComeFrom) {
  for (const Preset& preset : Presets()) {
    EXPECT_FALSE(preset.summary.empty()) << preset.name;
    EXPECT_LE(preset.summary.size(), 100u) << preset.name;
    EXPECT_EQ(preset.summary.find('\n'), std::string::npos) << preset.name;
    EXPECT_FALSE(preset.source.empty()) << preset.name;
    EXPECT_TRUE(preset.spec.preset.empty()) << preset.name;
    EXPECT_GT(preset.context_length.value_or(1), 0) << preset.name;
  }
}

// diffusers' table for an image of 64 by 64 patches, with the published pos_embed_max_size.
TEST(PresetsTest, StableDiffusion3StepsByTheSizeOfItsTable) {
  const struct {
    const char* name;
    int64_t size;
  } cases[] = {{"sd3-2d", 192}, {"sd3.5-medium-2d", 384}};
  for (const auto& [name, size] : cases) {
    const Preset* const preset = FindPreset(name);
    ASSERT_NE(preset, nullptr) << name;
    EXPECT_EQ(preset->spec.position_scale, 64.0 / static_cast<double>(size)) << name;
    EXPECT_EQ(preset->context_length, size) << name;
  }
}

// `value`, with every string replaced by that of `read`, which writes enumerators without prefix.
Json WithoutPrefixes(Json value, const Json& read) {
  if (value.is_string()) return read;
  if (!value.is_object()) return value;
  for (auto& [key, field] : value.items()) field = WithoutPrefixes(field, read[key]);
  return value;
}

TEST(PresetsTest, EveryNumberOfTheFileSurvives) {
  std::ifstream file(PHASOR_PRESETS_JSON);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto json = ParseJson(text, "presets");
  ASSERT_THAT(json, IsOk());
  ASSERT_EQ(json->size(), Presets().size());
  for (size_t i = 0; i < json->size(); ++i) {
    const Json& kept = (*json)[i];
    const Json spec = ToJson(Presets()[i].spec);
    EXPECT_EQ(kept["name"], Presets()[i].name);
    EXPECT_EQ(spec.size(), kept["spec"].size()) << kept["name"];
    const auto read = SpecFromJson(kept["spec"], "spec");
    ASSERT_THAT(read, IsOk());
    const Json wanted = WithoutPrefixes(kept["spec"], ToJson(*read));
    for (const auto& [key, value] : wanted.items()) {
      EXPECT_EQ(spec[key], value) << kept["name"] << " " << key;
    }
  }
}

TEST(PresetsTest, RefuseDataThatIsNotUnderstood) {
  const std::string good = R"("name": "x", "summary": "s", "required": [], "source": "s",
                              "verified": true, "note": "", "spec": {"dim": 4})";
  EXPECT_THAT(PresetsFromJson("[{" + good + "}]"), IsOk());
  const auto refused = [](const std::string& text, const std::string& message) {
    EXPECT_THAT(PresetsFromJson(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refused("{}", "presets: {}; must be a list");
  refused("[3]", "presets[0]: 3; must be an object");
  refused("[{" + good + R"(, "context": 3}])", "presets[0].context: no such field");
  refused("[{}]", "presets[0].name: null; must be a string");
  refused(R"([{"name": "x", "summary": "s", "source": "s", "required": [], "verified": true,
              "note": "", "spec": {"dims": 4}}])",
          "presets[0].spec.dims: no such field; the nearest known one is dim");
}

}  // namespace
}  // namespace phasor
