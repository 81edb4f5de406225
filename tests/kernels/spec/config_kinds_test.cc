// SPDX-License-Identifier: Apache-2.0
// Models whose kinds of layers rotate differently: which dictionary, base and scaling each has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/spec/config_json.h"
#include "tests/kernels/spec/configurations.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Config;
using testing::ExpectRefused;
using testing::IsOk;
using testing::Layer;
using testing::Llama;
using testing::Read;

TEST(ConfigKindsTest, LayersWithBasesOfTheirOwnAreChosenByKind) {
  const std::string gemma = R"({"model_type": "gemma3_text", "rope_local_base_freq": 20000.0,
                                "rope_scaling": {"rope_type": "linear", "factor": 8.0}})";
  ExpectRefused(Config(gemma),
                "spec.layer_type: not set; must be full_attention or sliding_attention");
  ExpectRefused(Layer(gemma, "global"), "spec.layer_type: global; must be");
  EXPECT_EQ(Read(Layer(gemma, "full_attention")).rope_theta, 1e6);
  EXPECT_EQ(Read(Layer(gemma, "full_attention")).rope_scaling, RopeScaling(LinearScaling{8.0}));
  EXPECT_EQ(Read(Layer(gemma, "sliding_attention")).rope_theta, 20000.0);
  EXPECT_EQ(Read(Layer(gemma, "sliding_attention")).rope_scaling, RopeScaling());
}

TEST(ConfigKindsTest, NestedParametersAreChosenByKind) {
  const std::string olmo = R"({"model_type": "olmo3", "head_dim": 128, "rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 2, "rope_theta": 7},
      "sliding_attention": {"rope_type": "default", "rope_theta": 8}, "other": null}})";
  ExpectRefused(Config(olmo),
                "spec.layer_type: not set; must be one of full_attention, "
                "sliding_attention");
  ExpectRefused(Layer(olmo, "other"), "whose layers model_type olmo3 does not rotate");
  ExpectRefused(Layer(olmo, "third"), "spec.layer_type: third; must be one of");
  EXPECT_EQ(Read(Layer(olmo, "sliding_attention")).rope_theta, 8);
  EXPECT_EQ(Read(Layer(olmo, "full_attention")).rope_scaling, RopeScaling(LinearScaling{2.0}));
  ExpectRefused(Layer(R"({"model_type": "olmo3", "head_dim": 128, "rope_parameters":
                          {"full_attention": {}, "rope_theta": 3}})",
                      "full_attention"),
                "rope_parameters.rope_theta: 3; must be an object");
}

// A flat dictionary, as OLMo 3 was published: YaRN applies only to layers with full attention.
std::string Olmo3(const std::string& more) {
  return R"({"model_type": "olmo3", "head_dim": 128, "layer_types": ["sliding_attention",
      "full_attention"])" +
         more + "}";
}
constexpr char kOlmo3Yarn[] = R"("rope_scaling": {"rope_type": "yarn", "factor": 8.0,
    "original_max_position_embeddings": 8192, "attention_factor": 1.25})";

TEST(ConfigKindsTest, AFlatOlmo3ScalesFullAttentionAlone) {
  const std::string olmo = Olmo3(R"(, "rope_theta": 500000, )" + std::string(kOlmo3Yarn));
  ExpectRefused(Config(olmo),
                "spec.layer_type: not set; must be full_attention or sliding_attention");
  ExpectRefused(Layer(olmo, "global"), "spec.layer_type: global; must be full_attention or");
  const Spec full = Read(Layer(olmo, "full_attention"));
  EXPECT_EQ(full.rope_theta, 500000);
  ASSERT_TRUE(std::holds_alternative<YarnScaling>(full.rope_scaling));
  EXPECT_EQ(std::get<YarnScaling>(full.rope_scaling).factor, 8);
  const Spec sliding = Read(Layer(olmo, "sliding_attention"));
  EXPECT_EQ(sliding.rope_theta, 500000);
  EXPECT_EQ(sliding.rope_scaling, RopeScaling());
}

TEST(ConfigKindsTest, AnOlmo3WithoutScalingNeedsNoKindOfLayer) {
  EXPECT_EQ(Read(Config(Olmo3(""))).rope_theta, 500000);
  EXPECT_EQ(Read(Config(Olmo3(R"(, "rope_scaling": {"type": "default"})"))).rope_theta, 500000);
}

// transformers 5.23.0 gives sliding layers its default base; earlier releases give them the file's.
TEST(ConfigKindsTest, AnotherBaseOfOlmo3sSlidingLayersIsTheCallersToSay) {
  const std::string olmo = Olmo3(R"(, "rope_theta": 1000000, )" + std::string(kOlmo3Yarn));
  EXPECT_EQ(Read(Layer(olmo, "full_attention")).rope_theta, 1e6);
  ExpectRefused(Layer(olmo, "sliding_attention"),
                "spec.config_json.rope_theta: 1e+06, but sliding_attention layers");
  Spec user = Layer(olmo, "sliding_attention");
  user.rope_theta = 1e6;
  EXPECT_EQ(Read(user).rope_scaling, RopeScaling());
}

TEST(ConfigKindsTest, ModelsWithTwoRotationsReadNoFlatRopeParameters) {
  for (const char* type : {"olmo3", "gemma3_text", "gemma3n_text", "gemma4_text", "modernbert"}) {
    const std::string text = R"({"model_type": ")" + std::string(type) +
                             R"(", "head_dim": 128, "rope_parameters": {"rope_theta": 7.0}})";
    ExpectRefused(Layer(text, "full_attention"),
                  "config_json.rope_parameters: one dictionary for all layers");
  }
  ExpectRefused(Layer(R"({"model_type": "gemma4_text", "rope_scaling": {"rope_theta": 7.0}})",
                      "full_attention"),
                "config_json.rope_scaling: one dictionary for all layers");
}

TEST(ConfigKindsTest, BasesAreReadUnderTheNamesOfTheirModelAlone) {
  const auto with = [](const std::string& type, const std::string& key) {
    return Layer(R"({"model_type": ")" + type + R"(", "head_dim": 64, ")" + key + R"(": 7.0})",
                 "full_attention");
  };
  ExpectRefused(with("modernbert", "rope_theta"), "rope_theta: is nothing that model_type");
  ExpectRefused(with("modernbert", "rope_local_base_freq"), "is nothing that model_type");
  ExpectRefused(with("gemma3_text", "local_rope_theta"), "is nothing that model_type");
  ExpectRefused(with("olmo3", "global_rope_theta"), "is nothing that model_type");
  ExpectRefused(with("olmo3", "rope_local_base_freq"), "is nothing that model_type");
}

TEST(ConfigKindsTest, WhichLayersAnUnknownModelScalesIsTheCallersToSay) {
  Spec user = Config(R"({"model_type": "other", "head_dim": 64, "rope_theta": 10000,
      "layer_types": ["sliding_attention", "full_attention"],
      "rope_scaling": {"type": "linear", "factor": 2}})");
  user.pairing = Pairing::kHalfSplit;
  ExpectRefused(user, "spec.config_json.rope_scaling: may be for full_attention layers alone");
  user.layer_type = "sliding_attention";
  ExpectRefused(user, "spec.config_json.rope_scaling: may be for full_attention layers alone");
  user.rope_scaling = LinearScaling{2};
  EXPECT_THAT(SpecFromConfigJson(user, "spec"), IsOk());
  user.rope_scaling = {};
  user.layer_type = "full_attention";
  EXPECT_EQ(Read(user).rope_scaling, RopeScaling(LinearScaling{2}));
}

TEST(ConfigKindsTest, ADictionaryOfAKindNeedsABaseIfNoKeyOfTheFileIsOne) {
  const auto with = [](const std::string& model_type, const std::string& dictionary) {
    return Layer(R"({"model_type": ")" + model_type + R"(", "head_dim": 128, "layer_types":
                 ["sliding_attention", "full_attention"], "rope_parameters": {"full_attention": {)" +
                     dictionary + "}}}",
                 "full_attention");
  };
  for (const char* model : {"gemma4_text", "laguna", "lfm3", "mellum", "ultrabert"}) {
    ExpectRefused(with(model, R"("rope_type": "default")"),
                  "spec.config_json.rope_parameters.full_attention.rope_theta: not set");
    EXPECT_EQ(Read(with(model, R"("rope_theta": 8)")).rope_theta, 8) << model;
    Spec user = with(model, R"("rope_type": "default")");
    user.rope_theta = 9;
    EXPECT_THAT(SpecFromConfigJson(user, "spec"), IsOk()) << model;
  }
  // Their classes fill it in.
  EXPECT_EQ(Read(with("gemma3_text", "")).rope_theta, 1e6);
  EXPECT_EQ(Read(with("modernbert", "")).rope_theta, 160000);
  EXPECT_EQ(Read(with("olmo3", "")).rope_theta, 500000);
}

TEST(ConfigKindsTest, AKindOfLayerMustExist) {
  ExpectRefused(Layer(Llama(""), "full_attention"), "spec.layer_type: full_attention is not in");
  const std::string listed = Llama(R"("layer_types": ["full_attention", "sliding_attention"])");
  EXPECT_THAT(SpecFromConfigJson(Layer(listed, "full_attention"), "spec"), IsOk());
}

TEST(ConfigKindsTest, LayersThatAModelDoesNotRotateAreRefused) {
  for (const char* type : {"cohere2", "exaone4"}) {
    const std::string text = R"({"head_dim": 64, "layer_types": ["sliding_attention",
        "full_attention"], "model_type": ")" +
                             std::string(type) + "\"";
    ExpectRefused(Layer(text + "}", "full_attention"),
                  "spec.layer_type: full_attention, whose layers model_type " + std::string(type) +
                      " does not rotate");
    ExpectRefused(Layer(text + ", \"sliding_window\": 4096}", "full_attention"), "does not rotate");
    EXPECT_EQ(Read(Layer(text + "}", "sliding_attention")).head_dim, 64);
  }
  EXPECT_EQ(Read(Layer(R"({"model_type": "exaone4", "head_dim": 64, "sliding_window": null,
                           "layer_types": ["full_attention"]})",
                       "full_attention"))
                .head_dim,
            64);
}

}  // namespace
}  // namespace phasor
