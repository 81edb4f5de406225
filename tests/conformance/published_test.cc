// SPDX-License-Identifier: Apache-2.0
// Compares facts of published configurations with what transformers computes for them
// (published.py): every kind of layers, and the layers of the whole model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "kernels/base/json.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/config_models.h"
#include "kernels/spec/model_layers.h"
#include "kernels/spec/spec.h"
#include "tests/support/direct.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

Json PublishedModels() {
  std::ifstream file(PHASOR_CONFORMANCE_FOLDER "/configs/published.json");
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

Spec SpecOfModel(const Json& model) {
  Spec spec;
  spec.config_json = model["config"].dump();
  if (model.contains("given")) spec.sequence_length = model["given"]["sequence_length"];
  return spec;
}

// Upstream rounds frequencies and angles to f32.
constexpr double kRelative = 0x1p-20;

void CompareNumbers(const Json& golden, const ResolvedSpec& spec) {
  const auto plan = CompilePlan(spec);
  ASSERT_THAT(plan, testing::IsOk());
  EXPECT_EQ(spec.live_pairs.value_or(spec.rotary_dim / 2), golden["pairs"]);
  EXPECT_NEAR((*plan)->amplitude, golden["amplitude"], kRelative * (*plan)->amplitude);
  for (size_t i = 0; i < golden["pair"].size(); ++i) {
    const int64_t pair = golden["pair"][i];
    if (pair >= spec.rotary_dim / 2) break;
    const std::vector<Position> unit(static_cast<size_t>(spec.axes), {1, 0});
    const auto turns = static_cast<int64_t>(testing::PairPhase(**plan, pair, unit));
    const double angle = golden["angle"][i];
    EXPECT_NEAR(static_cast<double>(turns) * 0x1p-64 * 2 * M_PI, angle, std::abs(angle) * kRelative)
        << "pair " << pair;
  }
}

// The layers of the whole model have the specs of their kinds.
void CompareLayers(const Json& golden, const Spec& spec) {
  const auto model = ResolveModel(spec);
  ASSERT_THAT(model, testing::IsOk());
  const ModelPart& part = model->parts[0];
  const Json& config = golden["config"];
  const Json& text = config.contains("text_config") ? config["text_config"] : config;
  const char* const key = text.contains("num_hidden_layers") ? "num_hidden_layers" : "n_layer";
  if (text.contains(key)) {
    EXPECT_EQ(part.layers.size(), text[key]);
  }
  const ConfigModel* const known = FindConfigModel(part.model_type);
  // The name under which upstream has the rotation of a layer.
  const auto kind_of = [&](const ModelLayer& layer) {
    if (golden["kinds"].contains(layer.layer_type) || known == nullptr) return layer.layer_type;
    const ConfigKind* const kind = known->Find(layer.layer_type);
    return kind == nullptr ? layer.layer_type : kind->name;
  };
  for (const ModelLayer& layer : part.layers) {
    if (!layer.spec.has_value()) continue;
    const bool nested = golden["kinds"].contains(kind_of(layer));
    ASSERT_TRUE(nested || golden["kinds"].contains("")) << layer.layer_type;
  }
  for (const auto& [kind, numbers] : golden["kinds"].items()) {
    for (const ModelLayer& layer : part.layers) {
      if (!layer.spec.has_value() || (!kind.empty() && kind_of(layer) != kind)) continue;
      CompareNumbers(numbers, model->specs[*layer.spec]);
      break;
    }
  }
}

TEST(PublishedTest, NoneIsReadDifferentlyFromTransformers) {
  int read = 0, refused = 0, different = 0, unknown = 0;
  for (const Json& model : PublishedModels()) {
    SCOPED_TRACE(model["name"].get<std::string>());
    const Spec spec = SpecOfModel(model);
    if (model.contains("unknown")) {  // upstream says nothing: Phasor must not guess
      unknown += 1;
      const auto resolved = ResolveSpec(spec);
      EXPECT_EQ(resolved.ok(), model.contains("known_here")) << resolved.status();
      continue;
    }
    if (model.contains("refused")) {
      refused += 1;
      EXPECT_THAT(ResolveModel(spec),
                  testing::StatusIs(testing::kInvalid, ::testing::HasSubstr("spec.")))
          << model["refused"];
      continue;
    }
    if (model.contains("differs")) {
      different += 1;
      EXPECT_THAT(ResolveModel(spec), testing::IsOk());
      continue;
    }
    read += 1;
    CompareLayers(model, spec);
  }
  std::cerr << read << " published configurations read as transformers does, " << refused
            << " refused, " << different << " read otherwise for a reason, " << unknown
            << " of models that transformers has no class for\n";
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace phasor
