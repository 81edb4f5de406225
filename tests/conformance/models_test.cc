// SPDX-License-Identifier: Apache-2.0
// Compares every model_type of models.json with what transformers computes for it (model_cases.py):
// the file that says nothing, run through the model's own attention layer, and the file that
// transformers saves. PHASOR_MODEL_CASES names a file of more cases, one per key: these may be
// refused, but never be read differently.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/base/json.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/config_models.h"
#include "kernels/spec/spec.h"
#include "tests/conformance/golden.h"
#include "tests/support/direct.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

Json CasesOf(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::vector<Position> Positions(const std::vector<double>& numbers) {
  std::vector<Position> at;
  for (const double number : numbers) at.push_back({static_cast<int64_t>(number), 0});
  return at;
}

Spec SpecOfCase(const Json& golden) {
  Spec spec;
  spec.config_json = golden["config"].dump();
  if (golden["kind"] != "") spec.layer_type = golden["kind"].get<std::string>();
  return spec;
}

// Upstream rounds frequencies and angles to f32.
constexpr double kError = 0x1p-20;

// Compares angles, amplitude and widths.
void CompareAngles(const Json& golden, const Plan& plan) {
  const ResolvedSpec& spec = plan.spec;
  EXPECT_EQ(spec.live_pairs.value_or(spec.rotary_dim / 2), golden["pairs"]);
  EXPECT_NEAR(plan.amplitude, golden["amplitude"], kError * plan.amplitude);
  for (size_t i = 0; i < golden["pair"].size(); ++i) {
    std::vector<double> unit(spec.axes, 0);
    unit[golden.contains("axis") ? golden["axis"][i].get<size_t>() : 0] = 1;
    if (!golden.contains("axis")) unit.assign(spec.axes, 1);
    const int64_t pair = golden["pair"][i];
    if (pair >= golden["pairs"]) break;
    const double turns =
        static_cast<double>(static_cast<int64_t>(testing::PairPhase(plan, pair, Positions(unit)))) *
        0x1p-64;
    const double angle = golden["angle"][i];
    EXPECT_NEAR(turns * 2 * M_PI, angle, std::abs(angle) * kError) << "pair " << pair;
  }
}

void CompareHead(const Json& golden, const Plan& plan) {
  ASSERT_EQ(plan.spec.head_dim, golden["head_dim"]);
  std::vector<double> head(plan.spec.head_dim);
  for (size_t lane = 0; lane < head.size(); ++lane) head[lane] = testing::InputLane(lane);
  const std::vector<double> got = testing::RotateHead(plan, Positions(golden["position"]), head);
  for (size_t i = 0; i < golden["lanes"].size(); ++i) {
    EXPECT_NEAR(got[golden["lanes"][i].get<size_t>()], golden["rotated"][i], 1e-4)
        << "lane " << golden["lanes"][i];
  }
}

// Returns whether the configuration was accepted.
bool Compare(const Json& golden) {
  const auto resolved = ResolveSpec(SpecOfCase(golden));
  if (!resolved.ok()) {
    EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument) << resolved.status();
    return false;
  }
  const auto plan = CompilePlan(*resolved);
  EXPECT_THAT(plan, testing::IsOk());
  if (!plan.ok()) return false;
  CompareAngles(golden, **plan);
  if (golden.contains("rotated")) CompareHead(golden, **plan);
  return true;
}

// Files that transformers saves and Phasor refuses.
constexpr const char* kRefused[] = {
    // Its rotary_dim is 64, but its class rotates whole heads of 128 lanes.
    "minimax_m3_vl_text saved"};

bool MayBeRefused(const std::string& name) {
  return std::find(std::begin(kRefused), std::end(kRefused), name) != std::end(kRefused);
}

TEST(ModelsTest, MeanWhatTheirModelsComputeFromTheFileAlone) {
  const Json cases = CasesOf(PHASOR_CONFORMANCE_FOLDER "/configs/models.json");
  std::map<std::string, bool> types;
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    types[golden["config"]["model_type"]] = true;
    EXPECT_NE(Compare(golden), MayBeRefused(golden["name"]))
        << ResolveSpec(SpecOfCase(golden)).status();
  }
  for (const ConfigModel& model : ConfigModels()) {
    EXPECT_TRUE(model.observed != "attention layer" || types[model.model_type])
        << model.model_type << " has no case";
  }
}

// Their layers come in an order that no rule of the table gives.
constexpr const char* kNeedLayerTypes[] = {"cohere2_moe first_k_dense_replace", "flint", "lfm3",
                                           "neomme", "zaya"};

// layer_cases.py: whole models of seven layers, run.
TEST(ModelsTest, TurnEveryLayerAsTheirModelsDo) {
  int models = 0, layers = 0, still = 0;
  std::set<std::string> refused;
  for (const Json& golden : CasesOf(PHASOR_CONFORMANCE_FOLDER "/configs/layers.json")) {
    const std::string name = golden["name"];
    if (golden.contains("failure")) {
      std::cerr << name << ": does not run alone: " << golden["failure"] << "\n";
      continue;
    }
    models += 1;
    for (size_t i = 0; i < golden["layers"].size(); ++i) {
      SCOPED_TRACE(name + ", layer " + std::to_string(i));
      const Json& layer = golden["layers"][i];
      Spec spec;
      spec.config_json = golden["config"].dump();
      spec.layer_type = std::to_string(i);
      const auto resolved = ResolveSpec(spec);
      layers += 1;
      if (absl::StrContains(resolved.status().message(), "layer_types: not set; must be")) {
        refused.insert(name);
        continue;
      }
      if (layer.is_null()) {
        still += 1;
        EXPECT_THAT(std::string(resolved.status().message()), ::testing::HasSubstr("rotate"));
        continue;
      }
      EXPECT_THAT(resolved, testing::IsOk()) << resolved.status();
      if (!resolved.ok()) continue;
      const auto plan = CompilePlan(*resolved);
      ASSERT_THAT(plan, testing::IsOk());
      CompareAngles(layer, **plan);
    }
  }
  for (const std::string& name : refused) std::cerr << name << ": refused without layer_types\n";
  std::cerr << models << " models, " << layers << " layers, " << still << " of them still\n";
  EXPECT_THAT(refused, ::testing::IsSubsetOf(kNeedLayerTypes));
  EXPECT_GT(still, 0);
}

TEST(ModelsTest, ReadOrRefuseEveryKeyAsTheirClassesDo) {
  const char* const path = std::getenv("PHASOR_MODEL_CASES");
  if (path == nullptr) GTEST_SKIP() << "PHASOR_MODEL_CASES is not set: ./dev conformance sets it";
  int read = 0, refused = 0;
  for (const Json& golden : CasesOf(path)) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    (Compare(golden) ? read : refused) += 1;
  }
  std::cerr << read << " configurations read, " << refused << " refused\n";
}

}  // namespace
}  // namespace phasor
