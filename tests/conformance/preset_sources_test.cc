// SPDX-License-Identifier: Apache-2.0
// Derives the numbers of presets that bear a model's name from public copies of that model's
// configuration (configs/preset_sources.json): language models through config_json, the others key
// by key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/base/json.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/names.h"
#include "kernels/spec/spec.h"
#include "tests/support/direct.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

Json Parsed(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

const Json& Sources() {
  static const Json& sources =
      *new Json(Parsed(PHASOR_CONFORMANCE_FOLDER "/configs/preset_sources.json"));
  return sources;
}

Json Named(const Json& list, const std::string& name) {
  for (const Json& entry : list) {
    if (entry["name"] == name) return entry;
  }
  ADD_FAILURE() << "nothing is called " << name;
  return {};
}

// The turn of every pair at every unit position, of head_dim and places that must agree too.
void ExpectSameRotation(const ResolvedSpec& preset, const ResolvedSpec& published) {
  EXPECT_EQ(preset.head_dim, published.head_dim);
  EXPECT_EQ(preset.rotary_begin, published.rotary_begin);
  ASSERT_EQ(preset.rotary_dim, published.rotary_dim);
  EXPECT_EQ(Name(preset.pairing), Name(published.pairing));
  EXPECT_EQ(Name(preset.pairing_out), Name(published.pairing_out));
  const auto ours = CompilePlan(preset), theirs = CompilePlan(published);
  ASSERT_THAT(ours, testing::IsOk());
  ASSERT_THAT(theirs, testing::IsOk());
  EXPECT_EQ((*ours)->amplitude, (*theirs)->amplitude);
  ASSERT_EQ(preset.axes, published.axes);
  for (int64_t axis = 0; axis < preset.axes; ++axis) {
    std::vector<Position> unit(static_cast<size_t>(preset.axes), {0, 0});
    unit[static_cast<size_t>(axis)] = {1, 0};
    for (int64_t pair = 0; pair < preset.rotary_dim / 2; ++pair) {
      EXPECT_EQ(testing::PairPhase(**ours, pair, unit), testing::PairPhase(**theirs, pair, unit))
          << "axis " << axis << " pair " << pair;
    }
  }
}

TEST(PresetSourcesTest, LanguageModelsHaveTheNumbersOfTheirPublishedFiles) {
  const Json published = Parsed(PHASOR_CONFORMANCE_FOLDER "/configs/published.json");
  int compared = 0;
  for (const Json& entry : Sources()) {
    if (!entry.contains("published")) continue;
    for (const Json& name : entry["published"]) {
      SCOPED_TRACE(entry["preset"].get<std::string>() + " and " + name.get<std::string>());
      Spec file, preset;
      file.config_json = Named(published, name)["config"].dump();
      if (entry.contains("layer_type")) file.layer_type = entry["layer_type"];
      if (entry.contains("pairing_out")) file.pairing_out = Pairing::kInterleaved;
      preset.preset = entry["preset"];
      if (entry.contains("sequence_length")) {
        file.sequence_length = preset.sequence_length = entry["sequence_length"];
      }
      const auto theirs = ResolveSpec(file);
      ASSERT_THAT(theirs, testing::IsOk());
      auto ours = ResolveSpec(preset);
      if (!ours.ok()) {  // the preset leaves the width of a head open
        preset.head_dim = theirs->head_dim;
        ours = ResolveSpec(preset);
      }
      ASSERT_THAT(ours, testing::IsOk());
      ExpectSameRotation(*ours, *theirs);
      compared += 1;
    }
  }
  std::cerr << compared << " published files have the numbers of their presets\n";
  EXPECT_GT(compared, 0);
}

// "a.0" in a file or a spec; a number stands for itself.
double Value(const Json& from, const std::string& path) {
  double number = 0;
  if (absl::SimpleAtod(path, &number)) return number;
  const Json* at = &from;
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  for (const std::string& part : parts) {
    int64_t index = 0;
    at = absl::SimpleAtoi(part, &index) ? &at->at(static_cast<size_t>(index)) : &at->at(part);
  }
  return at->get<double>();
}

// Products and quotients from left to right: "a*b", "1/a", "a/b/c".
double Computed(const Json& config, const std::string& expression) {
  double result = 1;
  size_t begin = 0;
  bool divides = false;
  while (begin <= expression.size()) {
    const size_t end = std::min(expression.find_first_of("*/", begin), expression.size());
    const double value = Value(config, expression.substr(begin, end - begin));
    result = divides ? result / value : result * value;
    divides = end < expression.size() && expression[end] == '/';
    begin = end + 1;
  }
  return result;
}

TEST(PresetSourcesTest, OtherModelsHaveTheNumbersOfTheirPublishedFiles) {
  const Json presets = Parsed(PHASOR_CONFORMANCE_FOLDER "/../../kernels/spec/presets.json");
  int compared = 0;
  for (const Json& entry : Sources()) {
    if (!entry.contains("means")) continue;
    SCOPED_TRACE(entry["preset"].get<std::string>() + " and " + entry["path"].get<std::string>());
    Json spec = Named(presets, entry["preset"])["spec"];
    if (!spec.contains("downscale_freq_shift")) spec["downscale_freq_shift"] = 0;
    for (const auto& [field, expression] : entry["means"].items()) {
      EXPECT_DOUBLE_EQ(Value(spec, field), Computed(entry["config"], expression)) << field;
    }
    compared += 1;
  }
  std::cerr << compared << " published files have the numbers of their presets, key by key\n";
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace phasor
