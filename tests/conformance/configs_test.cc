// SPDX-License-Identifier: Apache-2.0
// Compares configurations with what transformers' own classes compute for them (configs.py), and
// the table of model types with the files. Reports configurations that still need code at the end,
// by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/json.h"
#include "kernels/math/sincos.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/config_models.h"
#include "kernels/spec/spec_json.h"
#include "tests/conformance/golden.h"
#include "tests/support/direct.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

const Json& Cases() {
  static const auto& cases = *new Json([] {
    std::ifstream file(PHASOR_CONFORMANCE_FOLDER "/configs/golden.json");
    return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  }());
  return cases;
}

Spec SpecOf(const Json& golden) {
  auto spec = SpecFromJson(golden["given"], "given");
  EXPECT_THAT(spec, testing::IsOk());
  spec->config_json = golden["config"].dump();
  return *spec;
}

std::vector<Position> At(const std::vector<double>& numbers) {
  std::vector<Position> at;
  for (const double number : numbers) at.push_back({static_cast<int64_t>(number), 0});
  return at;
}

// Upstream rounds frequency, angle and result to f32.
constexpr double kFrequencyError = 0x1p-21;

class ConfigsTest : public ::testing::TestWithParam<size_t> {
 protected:
  const Json& golden() const { return Cases()[GetParam()]; }
};

TEST_P(ConfigsTest, MeansWhatTransformersComputes) {
  const auto resolved = ResolveSpec(SpecOf(golden()));
  if (resolved.status().code() == absl::StatusCode::kUnimplemented) {
    std::cerr << "PENDING, NOT TESTED: " << golden()["name"] << ": " << resolved.status().message()
              << "\n";
    GTEST_SKIP() << "PENDING: " << resolved.status().message();
  }
  ASSERT_THAT(resolved, testing::IsOk());
  const auto plan = CompilePlan(*resolved);
  ASSERT_THAT(plan, testing::IsOk());

  const std::vector<double> position = golden()["position"];
  const double amplitude = (*plan)->amplitude;
  const auto ones = At(std::vector<double>(position.size(), 1.0));
  for (size_t i = 0; i < golden()["pairs"].size(); ++i) {
    const auto [sin, cos] = SinCos64(testing::PairPhase(**plan, golden()["pairs"][i], ones));
    const double upstream_sin = golden()["sin"][i], upstream_cos = golden()["cos"][i];
    EXPECT_NEAR(amplitude * cos, upstream_cos, amplitude * kFrequencyError) << i;
    EXPECT_NEAR(amplitude * sin, upstream_sin, std::abs(upstream_sin) * kFrequencyError) << i;
  }

  const std::vector<double> rotated = golden()["rotated"];
  ASSERT_EQ(rotated.size(), (*plan)->spec.head_dim);
  std::vector<double> head(rotated.size());
  for (size_t lane = 0; lane < head.size(); ++lane) head[lane] = testing::InputLane(lane);
  const std::vector<double> got = testing::RotateHead(**plan, At(position), head);
  for (size_t lane = 0; lane < head.size(); ++lane) {
    EXPECT_NEAR(got[lane], rotated[lane], 1e-4) << "lane " << lane;
  }
}

std::string CaseName(const ::testing::TestParamInfo<size_t>& info) {
  std::string name = Cases()[info.param]["name"];
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden, ConfigsTest, ::testing::Range<size_t>(0, Cases().size()),
                         CaseName);

TEST(ConfigsListTest, CoverTwentyModelTypesAndEveryPairing) {
  std::set<std::string> types;
  std::set<std::pair<Pairing, Pairing>> pairings;
  for (const Json& golden : Cases()) {
    const Json& config = golden["config"];
    const Json& part = config.contains("text_config") ? config["text_config"] : config;
    const std::string type = part["model_type"];
    const ConfigModel* model = FindConfigModel(type);
    if (model == nullptr) {  // a composite model's file with flat text keys
      const auto& parts = ConfigParts(type);
      ASSERT_NE(parts.find("text_config"), parts.end()) << type;
      model = FindConfigModel(parts.find("text_config")->second);
    }
    ASSERT_NE(model, nullptr) << type;
    types.insert(type);
    pairings.insert({model->pairing, model->pairing_out});
  }
  EXPECT_GE(types.size(), 20u);
  EXPECT_EQ(pairings.size(), 3u);
}

}  // namespace
}  // namespace phasor
