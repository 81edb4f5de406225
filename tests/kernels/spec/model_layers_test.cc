// SPDX-License-Identifier: Apache-2.0
// Every layer of a model: kinds, bases and widths of their own, layers that do not rotate.
#include "kernels/spec/model_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "kernels/base/text.h"
#include "tests/kernels/spec/configurations.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Config;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Llama;
using testing::StatusIs;

// The spec of every layer of the first part.
std::vector<std::optional<ResolvedSpec>> LayersOfModel(const std::string& text) {
  const auto model = ResolveModel(Config(text));
  EXPECT_THAT(model, IsOk()) << text;
  std::vector<std::optional<ResolvedSpec>> layers;
  if (!model.ok()) return layers;
  for (const ModelLayer& layer : model->parts[0].layers) {
    layers.emplace_back();
    if (layer.spec.has_value()) layers.back() = model->specs[*layer.spec];
  }
  return layers;
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

TEST(ModelLayersTest, LayersRoundAsTheirClassIfTheyAreAskedTo) {
  Spec spec = Config(Llama(R"("num_hidden_layers": 3)"));
  EXPECT_FALSE(ResolveModel(spec)->specs[0].parity.has_value());
  spec.precision = Precision::kParity;
  const auto model = ResolveModel(spec);
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->specs[0].parity->table, ParityType::kModel);
}

// DeepSeek V4: sliding layers have the base of the model, the others one of their own and the
// scaling.
constexpr char kV4[] = R"({"model_type": "deepseek_v4", "num_hidden_layers": 5,
    "compress_rope_theta": 2e5, "rope_scaling": {"type": "yarn", "factor": 16,
    "original_max_position_embeddings": 65536})";

TEST(ModelLayersTest, LayersShareRotationsUnderOtherNames) {
  const auto layers = LayersOfModel(StrCat(kV4, R"(, "compress_ratios": [0, 4, 128, 0, 4, 4]})"));
  ASSERT_EQ(layers.size(), 5u);
  EXPECT_EQ(*layers[0], *layers[3]);
  EXPECT_EQ(layers[0]->rope_theta, 1e4);
  EXPECT_FALSE(IsSet(layers[0]->rope_scaling));
  EXPECT_EQ(layers[0]->rotary_begin, 448);
  EXPECT_EQ(layers[0]->rotary_dim, 64);
  EXPECT_EQ(*layers[1], *layers[2]);
  EXPECT_EQ(layers[1]->rope_theta, 2e5);
  EXPECT_EQ(std::get<YarnScaling>(layers[1]->rope_scaling).attention_factor, 1.0);
  EXPECT_THAT(BasesOf(StrCat(kV4, "}")), ::testing::Each(2e5)) << "no sliding layers by default";
  EXPECT_THAT(
      ResolveModel(Config(StrCat(kV4, R"(, "compress_ratios": [0, 4, 8, 0, 4]})"))),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("compress_ratios: 8 for layer 2")));
}

TEST(ModelLayersTest, KindsOfLayersAreAskedForByEitherName) {
  const auto read = [](const std::string& type, const std::string& more) {
    Spec spec = Config(StrCat(kV4, more, "}"));
    spec.layer_type = type;
    return ResolveSpec(spec);
  };
  for (const char* type : {"compress", "heavily_compressed_attention", "1"}) {
    EXPECT_EQ(read(type, "")->rope_theta, 2e5) << type;
  }
  EXPECT_EQ(read("main", "")->rope_theta, 1e4);
  EXPECT_EQ(read("sliding_attention", R"(, "rope_theta": 3e4)")->rope_theta, 3e4);
  EXPECT_EQ(read("main", R"(, "qk_rope_head_dim": 32)")->rotary_begin, 480);
  EXPECT_EQ(read("main", R"(, "partial_rotary_factor": 0.25)")->rotary_dim, 128);
  EXPECT_THAT(ResolveSpec(Config(StrCat(kV4, "}"))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("layer_type: not set; must be sliding_attention or "
                                 "compressed_sparse_attention or heavily_compressed_attention")));
}

TEST(ModelLayersTest, OfADictionaryForAllLayersOnlyTheScalingIsRead) {
  const auto read = [](const std::string& name, const std::string& more) {
    Spec spec = Config(StrCat(R"({"model_type": "deepseek_v4", ")", name,
                              R"(": {"rope_type": "linear", "factor": 4)", more, "}}"));
    spec.layer_type = "compress";
    return ResolveSpec(spec);
  };
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const auto spec = read(name, R"(, "rope_theta": 10000, "partial_rotary_factor": 0.125)");
    ASSERT_THAT(spec, IsOk());
    EXPECT_EQ(spec->rope_theta, 160000);
    EXPECT_EQ(spec->rotary_dim, 64);
    EXPECT_EQ(std::get<LinearScaling>(spec->rope_scaling).factor, 4);
    EXPECT_THAT(read(name, R"(, "rope_theta": 20000)"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(StrCat("spec.config_json.", name, ".rope_theta: 20000 is "))));
    EXPECT_THAT(read(name, R"(, "partial_rotary_factor": 0.5)"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(StrCat(name, ".partial_rotary_factor: 0.5 is "))));
  }
}

TEST(ModelLayersTest, ADictionaryForEachKindSaysWhatShareRotates) {
  const auto read = [](const std::string& main) {
    Spec spec = Config(R"({"model_type": "deepseek_v4", "rope_parameters": {"main": {)" + main +
                       R"("rope_theta": 5e4}, "compress": {"rope_type": "default"}}})");
    spec.layer_type = "sliding_attention";
    return ResolveSpec(spec);
  };
  EXPECT_EQ(read(R"("partial_rotary_factor": 0.5, )")->rotary_begin, 256);
  EXPECT_THAT(read(""), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("without partial_rotary_factor for main layers")));
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
  const auto model = ResolveModel(spec);
  ASSERT_THAT(model, IsOk());
  ASSERT_EQ(model->specs.size(), 1u);
  EXPECT_EQ(model->specs[0].rope_theta, 77);
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

TEST(ModelLayersTest, LayersThatAreAlikeShareASpec) {
  const auto model = ResolveModel(Config(R"({"model_type": "gemma3_text"})"));
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->specs.size(), 2u);
  const ModelPart& part = model->parts[0];
  EXPECT_EQ(part.model_type, "gemma3_text");
  ASSERT_EQ(part.layers.size(), 26u);
  EXPECT_EQ(part.layers[0], (ModelLayer{"sliding_attention", 0}));
  EXPECT_EQ(part.layers[5], (ModelLayer{"full_attention", 1}));
  EXPECT_EQ(part.layers[25], part.layers[0]);
}

TEST(ModelLayersTest, AModelsFingerprintIsThatOfItsLayersInOrder) {
  const auto fingerprint = [](const std::string& kinds) {
    const auto model = ResolveModel(Config(
        R"({"model_type": "gemma3_text", "num_hidden_layers": 2, "layer_types": )" + kinds + "}"));
    EXPECT_THAT(model, IsOk());
    return model->parts[0].fingerprint;
  };
  const std::string one = fingerprint(R"(["full_attention", "sliding_attention"])");
  EXPECT_EQ(one, fingerprint(R"(["full_attention", "sliding_attention"])"));
  EXPECT_NE(one, fingerprint(R"(["sliding_attention", "full_attention"])"));
  EXPECT_NE(one, fingerprint(R"(["full_attention", "full_attention"])"));
  EXPECT_EQ(one.size(), 32u);
}

TEST(ModelLayersTest, TowersAreListedByTheirNames) {
  const std::string text = R"({"model_type": "qwen2_5_vl",
      "text_config": {"model_type": "qwen2_5_vl_text", "num_hidden_layers": 2},
      "vision_config": {"model_type": "qwen2_5_vl", "depth": 3, "hidden_size": 1280,
                        "num_heads": 16}})";
  Spec spec = Config(text);
  spec.rope_theta = 5e5;
  const auto model = ResolveModel(spec);
  ASSERT_THAT(model, IsOk());
  ASSERT_EQ(model->parts.size(), 2u);
  EXPECT_EQ(model->parts[0].sub_config, "");
  EXPECT_EQ(model->parts[0].layers.size(), 2u);
  EXPECT_EQ(model->specs[0].rope_theta, 5e5);
  const ModelPart& tower = model->parts[1];
  EXPECT_EQ(tower.sub_config, "vision_config");
  EXPECT_EQ(tower.error, "");
  ASSERT_EQ(tower.layers.size(), 3u);
  // The caller's fields are for the language model.
  EXPECT_EQ(model->specs[*tower.layers[0].spec],
            *ResolveSpec(testing::Part(text, "vision_config")));

  const auto alone = ResolveModel(testing::Part(text, "vision_config"));
  ASSERT_THAT(alone, IsOk());
  ASSERT_EQ(alone->parts.size(), 1u);
  EXPECT_EQ(alone->parts[0].layers.size(), 3u);
  const auto part = ResolveModelPart(Config(text));
  ASSERT_THAT(part, IsOk());
  EXPECT_EQ(part->parts.size(), 1u);
}

TEST(ModelLayersTest, ATowerThatIsNotKnownSaysWhy) {
  const auto model = ResolveModel(Config(R"({"model_type": "gemma3",
      "text_config": {"model_type": "gemma3_text"},
      "vision_config": {"model_type": "siglip_vision_model"},
      "quantization_config": {"bits": 4}})"));
  ASSERT_THAT(model, IsOk());
  ASSERT_EQ(model->parts.size(), 2u);
  EXPECT_THAT(model->parts[1].error,
              HasSubstr("spec.config_json.vision_config.model_type: \"siglip_vision_model\""));
  EXPECT_TRUE(model->parts[1].layers.empty());
}

TEST(ModelLayersTest, AFrameHasOnlyItsParts) {
  const auto model = ResolveModel(Config(R"({"model_type": "qwen2_5_omni", "thinker_config":
      {"model_type": "qwen2_5_omni_thinker",
       "text_config": {"model_type": "qwen2_5_omni_text", "num_hidden_layers": 2},
       "vision_config": {"model_type": "qwen2_5_omni_vision_encoder", "depth": 2,
                         "hidden_size": 1280, "num_heads": 16}}})"));
  ASSERT_THAT(model, IsOk());
  ASSERT_EQ(model->parts.size(), 2u);
  EXPECT_EQ(model->parts[0].sub_config, "thinker_config.text_config");
  EXPECT_EQ(model->parts[1].sub_config, "thinker_config.vision_config");
  EXPECT_EQ(model->parts[0].error, "");
}

TEST(ModelLayersTest, AStrangersFileMakesNoManySpecs) {
  std::string bases, names;
  for (int i = 0; i < 65; ++i) bases += (i == 0 ? "" : ", ") + std::to_string(10000 + i);
  const auto text = [&](int layers) {
    return R"({"model_type": "granite_swa", "num_hidden_layers": )" + std::to_string(layers) +
           R"(, "layer_rope_theta": [)" + bases + "]}";
  };
  EXPECT_EQ(ResolveModel(Config(text(64)))->specs.size(), 64u);
  EXPECT_THAT(ResolveModel(Config(text(65))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("spec.config_json: layers of more than 64 kinds")));
  std::string parts = R"({"model_type": "llama", "head_dim": 64)";
  for (int i = 0; i < 50; ++i) {
    parts += R"(, "p)" + std::to_string(i) + R"(_config": {"model_type": "x"})";
  }
  EXPECT_EQ(ResolveModel(Config(parts + "}"))->parts.size(), 32u);
  std::string scaled = "0";
  for (int i = 0; i < 1024; ++i) scaled += ", 0";
  EXPECT_THAT(ResolveModel(Config(R"({"model_type": "molmo2_text", "num_hidden_layers": 2,
      "rope_scaling_layers": [)" + scaled +
                                  "]}")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rope_scaling_layers: 1025 entries; must be at most 1024")));
  std::string changed;
  for (int i = 0; i < 1025; ++i) {
    changed += (i == 0 ? "\"" : ", \"") + std::to_string(i) + "\": {}";
  }
  EXPECT_THAT(ResolveModel(Config(R"({"model_type": "gemma4_text", "per_layer_config": {)" +
                                  changed + "}}")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("per_layer_config: 1025 entries; must be at most 1024")));
}

// Facts of published files that were refused.
TEST(ModelLayersTest, PublishedFilesWithKeysThatSayWhatHoldsAreRead) {
  const std::string mimo = R"({"model_type": "mimo_v2_flash", "num_hidden_layers": 7,
      "swa_rope_theta": 10000, "rope_theta": )";
  EXPECT_THAT(BasesOf(mimo + "5000000}"),
              ::testing::ElementsAre(5e6, 1e4, 1e4, 1e4, 1e4, 5e6, 1e4));
  EXPECT_THAT(ResolveModel(Config(mimo + "6000000}")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rope_theta: is nothing")));
  EXPECT_THAT(BasesOf(R"({"model_type": "exaone4_5", "text_config": {
      "model_type": "exaone4_5_text", "num_hidden_layers": 4, "rope_theta": 1000000.0}})"),
              ::testing::ElementsAre(1e6, 1e6, 1e6, 0));
  EXPECT_THAT(BasesOf(R"({"model_type": "glm_moe_dsa", "num_hidden_layers": 1,
                          "head_dim": 192, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
                          "indexer_rope_interleave": true, "rope_interleave": true})"),
              ::testing::ElementsAre(1e4));
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
