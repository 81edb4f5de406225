// SPDX-License-Identifier: Apache-2.0
// Every layer of a model: kinds, bases and widths of their own, layers that do not rotate.
#include "kernels/spec/model_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "tests/kernels/spec/configurations.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Config;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Llama;
using testing::StatusIs;

std::vector<std::optional<ResolvedSpec>> LayersOfModel(const std::string& text) {
  const auto layers = ResolveModel(Config(text));
  EXPECT_THAT(layers, IsOk()) << text;
  return layers.ok() ? *layers : std::vector<std::optional<ResolvedSpec>>();
}

// One letter per layer: its base, or '-' where it does not rotate.
std::vector<double> BasesOf(const std::string& text) {
  std::vector<double> bases;
  for (const auto& layer : LayersOfModel(text)) {
    bases.push_back(layer.has_value() ? layer->rope_theta : 0);
  }
  return bases;
}

TEST(ModelLayersTest, LayersOfOneKindAreAllAlike) {
  const std::string text = Llama(R"("num_hidden_layers": 3)");
  const auto layers = LayersOfModel(text);
  ASSERT_EQ(layers.size(), 3u);
  for (const auto& layer : layers) EXPECT_EQ(*layer, *ResolveSpec(Config(text)));
}

TEST(ModelLayersTest, KindsTakeTurnsAsTheFileOrTheClassSays) {
  const std::string gemma = R"({"model_type": "gemma3_text", "num_hidden_layers": 7)";
  EXPECT_THAT(BasesOf(gemma + "}"), ::testing::ElementsAre(1e4, 1e4, 1e4, 1e4, 1e4, 1e6, 1e4));
  EXPECT_THAT(BasesOf(R"({"model_type": "gemma3_text", "num_hidden_layers": 2,
                          "layer_types": ["full_attention", "sliding_attention"]})"),
              ::testing::ElementsAre(1e6, 1e4));
}

TEST(ModelLayersTest, LayersThatDoNotRotateHaveNoSpec) {
  EXPECT_THAT(BasesOf(R"({"model_type": "smollm3", "num_hidden_layers": 5})"),
              ::testing::ElementsAre(2e6, 2e6, 2e6, 0, 2e6));
  EXPECT_THAT(BasesOf(R"({"model_type": "smollm3", "num_hidden_layers": 3,
                          "no_rope_layers": [1, 0, 1]})"),
              ::testing::ElementsAre(2e6, 0, 2e6));
  EXPECT_THAT(BasesOf(R"({"model_type": "cohere2", "num_hidden_layers": 4})"),
              ::testing::ElementsAre(1e4, 1e4, 1e4, 0));
  EXPECT_THAT(BasesOf(R"({"model_type": "qwen3_next", "num_hidden_layers": 4})"),
              ::testing::ElementsAre(0, 0, 0, 1e4));
}

TEST(ModelLayersTest, ListsPerLayerAreRead) {
  EXPECT_THAT(BasesOf(R"({"model_type": "granite_swa", "num_hidden_layers": 3,
                          "layer_rope_theta": [5e5, 0, 1e4]})"),
              ::testing::ElementsAre(5e5, 0, 1e4));
  const auto layers = LayersOfModel(R"({"model_type": "molmo2_text", "num_hidden_layers": 2,
      "rope_scaling": {"rope_type": "linear", "factor": 4}, "rope_scaling_layers": [1]})");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(layers[0]->rope_scaling));
  EXPECT_TRUE(std::holds_alternative<LinearScaling>(layers[1]->rope_scaling));
}

TEST(ModelLayersTest, TheSpecsOwnFieldsOverrideAllLayers) {
  Spec spec = Config(Llama(R"("num_hidden_layers": 2)"));
  spec.rope_theta = 77;
  const auto layers = ResolveModel(spec);
  ASSERT_THAT(layers, IsOk());
  EXPECT_EQ((*layers)[1]->rope_theta, 77);
}

TEST(ModelLayersTest, RefusesWhatIsNoModel) {
  EXPECT_THAT(ResolveModel(Spec()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("spec.config_json: not set")));
  Spec spec = Config(Llama(""));
  spec.layer_type = "full_attention";
  EXPECT_THAT(ResolveModel(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("spec.layer_type: set")));
  EXPECT_THAT(ResolveModel(Config(Llama(R"("num_hidden_layers": 2000)"))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_hidden_layers: 2000; must be in [1, 1024]")));
  EXPECT_FALSE(ResolveModel(Config(Llama(R"("rope_thta": 1)"))).ok());
}

TEST(ModelLayersTest, ALayersNumberIsAlsoALayerType) {
  const std::string text = R"({"model_type": "granite_swa", "num_hidden_layers": 2,
                               "layer_rope_theta": [5e5, 1e4]})";
  EXPECT_EQ(ResolveSpec(testing::Layer(text, "0"))->rope_theta, 5e5);
  testing::ExpectRefused(testing::Layer(text, "2"), "spec.layer_type: 2; must be in [0, 1]");
  testing::ExpectRefused(Config(text), "spec.layer_type: not set; must be the number of a layer");
}

}  // namespace
}  // namespace phasor
