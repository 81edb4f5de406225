// SPDX-License-Identifier: Apache-2.0
// Which parts of a configuration are chosen, and which configurations are refused.
// tests/conformance/configs_test.cc compares their meaning with transformers.
#include "kernels/spec/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "tests/kernels/spec/configurations.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Config;
using testing::ExpectRefused;
using testing::IsOk;
using testing::Layer;
using testing::Llama;
using testing::Part;
using testing::Read;
using testing::StatusIs;

TEST(ConfigJsonTest, KeysThatSayWhatIsSoAnywayAreAccepted) {
  for (const char* extra :
       {R"("model_type": "qwen2", "use_mrope": false)", R"("model_type": "gptj", "rotary": true)",
        R"("model_type": "cohere2", "position_embedding_type": "rope_gptj")",
        R"("model_type": "roformer", "rotary_value": false)",
        R"("model_type": "modernbert", "position_embedding_type": "absolute")"}) {
    Spec spec;
    spec.config_json = std::string("{\"head_dim\": 64, ") + extra + "}";
    if (std::string(extra).find("modernbert") != std::string::npos)
      spec.layer_type = "full_attention";
    EXPECT_TRUE(ResolveSpec(spec).ok()) << extra << ResolveSpec(spec).status();
  }
  for (const char* extra :
       {R"("model_type": "qwen2", "use_mrope": true)", R"("model_type": "gptj", "rotary": false)",
        R"("model_type": "llama", "position_embedding_type": "rope_gptj")"}) {
    Spec spec;
    spec.config_json = std::string("{\"head_dim\": 64, ") + extra + "}";
    EXPECT_FALSE(ResolveSpec(spec).ok()) << extra;
  }
}

TEST(ConfigJsonTest, ModelsThatTurnBackwardsKeepToItUnderAScale) {
  const auto scale = [](Spec user) {
    user.config_json = R"({"model_type": "nanochat"})";
    const auto spec = ResolveSpec(user);
    EXPECT_THAT(spec, IsOk());
    if (!spec.ok()) return 0.0;
    return spec->position_scale *
           (spec->axes_position_scale.empty() ? 1 : spec->axes_position_scale[0]);
  };
  EXPECT_EQ(scale({}), -1);
  EXPECT_EQ(scale({.position_scale = 0.5}), -0.5);
  EXPECT_EQ(scale({.axes_position_scale = {0.5}}), -0.5);
  Spec both = {.position_scale = 0.5, .axes_position_scale = {2}};
  both.config_json = R"({"model_type": "nanochat"})";
  ExpectRefused(both,
                "spec.axes_position_scale: set beside position_scale; must be one of the two "
                "for model_type nanochat");
}

TEST(ConfigJsonTest, RefusesARopeInterleaveThatIsNull) {
  const std::string text = R"({"model_type": "deepseek_v3", "rope_interleave": null})";
  ExpectRefused(Config(text),
                "rope_interleave: null, which transformers takes for false; must be ");
  Spec own = Config(text);
  own.pairing = Pairing::kHalfSplit;
  Read(own);
}

// GPT-J's class rotates 64 lanes if the key is absent, and the whole head if it is null.
TEST(ConfigJsonTest, AnAbsentRotaryDimIsTheClassesDefault) {
  Spec spec;
  spec.config_json = R"({"model_type": "gptj", "head_dim": 256})";
  EXPECT_EQ(ResolveSpec(spec)->rotary_dim, 64);
  spec.config_json = R"({"model_type": "gptj", "head_dim": 256, "rotary_dim": null})";
  EXPECT_EQ(ResolveSpec(spec)->rotary_dim, 256);
}

TEST(ConfigJsonTest, ReadsALlama) {
  Spec want;
  want.kind = SpecKind::kRotary;
  want.family = FrequencyFamily::kGeometric;
  want.rope_theta = 500000;
  want.head_dim = 128;
  want.pairing = want.pairing_out = Pairing::kHalfSplit;
  want.parity = {.frequency = ParityFrequency::kFloat32Pow,
                 .angle = ParityType::kFloat32,
                 .table = ParityType::kModel,
                 .math = ParityType::kModel};
  EXPECT_EQ(Read(Config(Llama(R"("rope_theta": 500000.0, "vocab_size": 9, "rope_scaling": null)"))),
            want);
}

TEST(ConfigJsonTest, PathsOfErrorsAreTheConfigurations) {
  EXPECT_THAT(SpecFromConfigJson(Config(Llama(R"("rope_theta": "x")")), "item.spec"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "item.spec.config_json.rope_theta: \"x\"; must be a number"));
}

TEST(ConfigJsonTest, RefusesWhatIsNoObject) {
  for (const char* text : {"", "{", "[]", "null", "3", "\"llama\""}) {
    EXPECT_FALSE(SpecFromConfigJson(Config(text), "spec").ok()) << text;
  }
  ExpectRefused(Config(R"({"model_type": "llama", "model_type": "gptj"})"), "twice");
}

TEST(ConfigJsonTest, AnUnknownModelTypeAsksForThePairing) {
  const std::string text =
      R"({"model_type": "newmodel", "head_dim": 64, "rope_theta": 1e6, "partial_rotary_factor": 0.5})";
  ExpectRefused(
      Config(text),
      "spec.config_json.model_type: \"newmodel\" is not known; must be one "
      "of docs/models.md, or spec.pairing must say which lanes form a pair (HALF_SPLIT in "
      "most models)");
  ExpectRefused(Config(R"({"model_type": "deepseek_v9", "qk_rope_head_dim": 64})"),
                "(likely INTERLEAVED, as in DeepSeek)");
  ExpectRefused(Config(R"({"model_type": "cohere9"})"), "(likely INTERLEAVED, as in cohere)");
  ExpectRefused(Config(R"({"model_type": "lama", "head_dim": 64})"),
                "model_type: \"lama\" is not known; did you mean \"llama\"? must be one of");
  Spec user = Config(text);
  user.pairing = Pairing::kInterleaved;
  const Spec spec = Read(user);
  EXPECT_EQ(spec.rope_theta, 1e6);
  EXPECT_EQ(spec.partial_rotary_factor, 0.5);
  EXPECT_EQ(spec.pairing, std::nullopt);  // the user's pairing stays
  user.config_json = R"({"model_type": "newmodel", "head_dim": 64})";
  ExpectRefused(user, "rope_theta: not set; must be given where the model_type is not known");
  user.rope_theta = 10000;
  EXPECT_EQ(Read(user).rope_theta, std::nullopt);
  user.config_json = R"({"head_dim": 64, "rope_scaling": {"mrope_section": [8, 12, 12]}})";
  ExpectRefused(user, "spec.axis_rule: not set");
  user.axis_rule = AxisRule::kMropeChunked;
  EXPECT_EQ(Read(user).axes, 3);
}

TEST(ConfigJsonTest, AKeyAboutRotationThatIsNotUnderstoodIsAnError) {
  ExpectRefused(Config(Llama(R"("rope_thta": 1)")),
                "rope_thta: no such field; the nearest known one is rope_theta");
  for (const char* key : {"swa_rope_theta", "use_xpos", "rotary_percent", "nope_layers",
                          "rope_type", "yarn_factor", "partial_rotary_factors"}) {
    ExpectRefused(Config(Llama("\"" + std::string(key) + "\": 2")), key);
    EXPECT_THAT(SpecFromConfigJson(Config(Llama("\"" + std::string(key) + "\": null")), "spec"),
                IsOk());
  }
  ExpectRefused(Config(Llama(R"("rope_scaling": {"type": "linear", "factor": 2, "beta": 1})")),
                "beta");
}

TEST(ConfigJsonTest, KeysOfOtherModelsAreErrors) {
  for (const char* key : {"rope_local_base_freq", "qk_rope_head_dim", "global_head_dim"}) {
    ExpectRefused(Config(Llama("\"" + std::string(key) + "\": 64")),
                  "is nothing that model_type llama");
  }
  ExpectRefused(Config(Llama(R"("partial_rotary_factor": 0.5)")), "llama rotates whole heads");
  ExpectRefused(Config(Llama(R"("rotary_dim": 64)")), "64 contradicts head_dim 128");
  EXPECT_EQ(Read(Config(Llama(R"("partial_rotary_factor": 1.0)"))).partial_rotary_factor,
            std::nullopt);
  ExpectRefused(Config(Llama(R"("rope_scaling": {"mrope_section": [16, 24, 24]})")),
                "model_type llama has one axis");
}

TEST(ConfigJsonTest, OtherPositionEncodingsAreErrors) {
  ExpectRefused(Config(R"({"model_type": "falcon", "head_dim": 64, "alibi": true})"),
                "alibi: true");
  ExpectRefused(Config(R"({"model_type": "esm", "head_dim": 20, "position_embedding_type":
                           "absolute"})"),
                "position_embedding_type: absolute; must be rope");
}

TEST(ConfigJsonTest, ContradictionsAreErrors) {
  ExpectRefused(Config(Llama(R"("rope_theta": 1, "rope_parameters": {"rope_theta": 2})")),
                "rope_theta: 1 contradicts 2");
  ExpectRefused(Config(Llama(R"("rope_scaling": {"type": "default"},
                               "rope_parameters": {"rope_type": "default"})")),
                "rope_scaling: differs from rope_parameters");
  ExpectRefused(Config(R"({"model_type": "phi", "head_dim": 80, "partial_rotary_factor": 0.5,
                           "rope_parameters": {"partial_rotary_factor": 0.4}})"),
                "partial_rotary_factor: 0.5 contradicts 0.4");
  ExpectRefused(Config(R"({"model_type": "gptj", "head_dim": 256, "rotary_dim": 64,
                           "partial_rotary_factor": 0.5})"),
                "rotary_dim: 64 contradicts");
  ExpectRefused(Config(R"({"model_type": "deepseek_v3", "qk_nope_head_dim": 128,
                           "qk_rope_head_dim": 64, "head_dim": 128})"),
                "head_dim: 128 contradicts qk_rope_head_dim 64");
  ExpectRefused(Config(R"({"rope_theta": 5, "text_config": {"model_type": "llama"}})"),
                "config_json.rope_theta: text_config does not say the same");
}

TEST(ConfigJsonTest, HeadsNeedAWidth) {
  Spec unknown = Config(R"({"model_type": "newmodel", "rope_theta": 1e4})");
  unknown.pairing = Pairing::kHalfSplit;
  ExpectRefused(unknown, "head_dim: not set; must be given without hidden_size");
  ExpectRefused(Config(R"({"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3})"),
                "does not split evenly over 3 heads");
  ExpectRefused(Config(R"({"model_type": "llama", "head_dim": 0})"), "head_dim: 0; must be > 0");
  ExpectRefused(Config(R"({"model_type": "llama", "head_dim": 65538})"), "out of range");
  Spec user = Config(R"({"model_type": "llama"})");
  user.head_dim = 96;
  EXPECT_EQ(Read(user).head_dim, 96);
}

TEST(ConfigJsonTest, JetMoesHeadsAreItsKvChannelsWide) {
  const std::string jetmoe = R"({"model_type": "jetmoe", "hidden_size": 2048,
                                 "num_attention_heads": 32, "kv_channels": 96)";
  const Spec spec = Read(Config(jetmoe + "}"));
  EXPECT_EQ(spec.head_dim, 96);
  EXPECT_EQ(spec.pairing, Pairing::kHalfSplit);
  EXPECT_EQ(Read(Config(R"({"model_type": "jetmoe"})")).head_dim, 128);
  EXPECT_EQ(Read(Config(R"({"model_type": "jetmoe", "head_dim": 64})")).head_dim, 64);
  ExpectRefused(Config(jetmoe + R"(, "head_dim": 64})"), "kv_channels: 96 contradicts head_dim 64");
}

TEST(ConfigJsonTest, OtherNamesOfAHeadsWidthMustNotContradictIt) {
  for (const char* key : {"kv_channels", "attention_head_dim", "swa_head_dim", "d_kv"}) {
    const std::string name = "\"" + std::string(key) + "\": ";
    ExpectRefused(Config(Llama(name + "64")), std::string(key) + ": 64 contradicts head_dim 128");
    EXPECT_EQ(Read(Config(Llama(name + "128"))).head_dim, 128);
    Spec user = Config(Llama(name + "64"));
    user.head_dim = 64;
    EXPECT_EQ(Read(user).head_dim, 64);
  }
}

TEST(ConfigJsonTest, HeadsOfSingleLayersAreChosenByKind) {
  const std::string gemma = R"({"model_type": "gemma4_text", "head_dim": 256, "layer_types":
      ["sliding_attention", "full_attention"], "per_layer_config": {"1": {"head_dim": 384}},
      "rope_parameters": {"full_attention": {"rope_theta": 8}, "sliding_attention":
      {"rope_theta": 8}})";
  EXPECT_EQ(Read(Layer(gemma + "}", "full_attention")).head_dim, 384);
  EXPECT_EQ(Read(Layer(gemma + "}", "sliding_attention")).head_dim, 256);
  ExpectRefused(Layer(gemma + R"(, "global_head_dim": 512})", "full_attention"),
                "global_head_dim: 512 contradicts per_layer_config");
  Spec user = Layer(gemma + "}", "full_attention");
  user.head_dim = 320;
  EXPECT_EQ(Read(user).head_dim, 320);
}

TEST(ConfigJsonTest, WithPerLayerConfigGemma4sFullLayersHaveNoWidthOfTheirOwn) {
  const std::string gemma = R"({"model_type": "gemma4_text", "head_dim": 256, "layer_types":
      ["sliding_attention", "full_attention"], "rope_parameters": {"full_attention":
      {"rope_theta": 8}})";
  EXPECT_EQ(Read(Layer(gemma + "}", "full_attention")).head_dim, 512);
  EXPECT_EQ(Read(Layer(gemma + R"(, "per_layer_config": {"1": {}}})", "full_attention")).head_dim,
            256);
}

TEST(ConfigJsonTest, LayersThatDivideTheirHeadsOtherwiseNeedAWidth) {
  const std::string llama = Llama(R"("layer_types": ["full_attention"], "per_layer_config":
                                     {"0": {"num_attention_heads": 16}})");
  ExpectRefused(Config(llama), "per_layer_config: changes num_attention_heads");
  Spec user = Config(llama);
  user.head_dim = 256;
  EXPECT_EQ(Read(user).head_dim, 256);
}

TEST(ConfigJsonTest, ModelsOfGptJsKindGiveTheirOwnNames) {
  const Spec spec = Read(Config(R"({"model_type": "gptj", "n_embd": 4096, "n_head": 16,
                                    "rotary_dim": 64})"));
  EXPECT_EQ(spec.head_dim, 256);
  EXPECT_EQ(spec.rotary_dim, 64);
  EXPECT_EQ(spec.pairing, Pairing::kInterleaved);
}

TEST(ConfigJsonTest, BambasTwoWaysToSayItsLanesMustAgree) {
  const std::string text = R"({"model_type": "bamba", "head_dim": 128, "attn_rotary_emb": )";
  EXPECT_EQ(ResolveSpec(Config(text + "64}"))->rotary_dim, 64);
  ExpectRefused(Config(text + "128}"), "attn_rotary_emb: 128; must be half of head_dim 128");
  ExpectRefused(Config(Llama(R"("attn_rotary_emb": 64)")), "attn_rotary_emb: ");
}

TEST(ConfigJsonTest, LatentHeadsRotateTheirLastLanes) {
  const std::string text = R"({"model_type": "deepseek_v3", "qk_nope_head_dim": 128,
                               "qk_rope_head_dim": 64, "head_dim": 64, "rope_theta": 10000)";
  const Spec spec = Read(Config(text + "}"));
  EXPECT_EQ(spec.head_dim, 192);
  EXPECT_EQ(spec.rotary_begin, 128);
  EXPECT_EQ(spec.rotary_dim, 64);
  EXPECT_EQ(spec.pairing, Pairing::kInterleaved);
  EXPECT_EQ(spec.pairing_out, Pairing::kHalfSplit);
  EXPECT_EQ(Read(Config(text + ", \"rope_interleave\": false}")).pairing, Pairing::kHalfSplit);
}

// DBRX as published. Its models have that base; transformers 5 computes with another.
TEST(ConfigJsonTest, ABaseInDbrxsAttentionIsTheCallersToSay) {
  const std::string dbrx = R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "attn_config":
      {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": )";
  Spec spec = Config(dbrx + "500000}}");
  ExpectRefused(spec, "attn_config.rope_theta: 500000, but transformers");
  spec.rope_theta = 500000;
  EXPECT_THAT(ResolveSpec(spec), IsOk());
  EXPECT_EQ(Read(spec).head_dim, 128);
  EXPECT_EQ(Read(Config(dbrx + "10000}}")).rope_theta, 10000);
}

TEST(ConfigJsonTest, PartsAreChosenByName) {
  const std::string model = R"({"model_type": "mix",
      "text_config": {"model_type": "llama", "head_dim": 64},
      "thinker_config": {"text_config": {"model_type": "llama", "head_dim": 32}},
      "vision_config": {"model_type": "qwen2_vl", "embed_dim": 1280, "num_heads": 16}})";
  EXPECT_EQ(Read(Config(model)).head_dim, 64);
  EXPECT_EQ(Read(Part(model, "thinker_config.text_config")).head_dim, 32);
  const Spec vision = Read(Part(model, "vision_config"));
  EXPECT_EQ(vision.head_dim, 80);
  EXPECT_EQ(vision.axes, 2);
  EXPECT_EQ(vision.axis_rule, AxisRule::kAxial);
  for (const char* name : {"audio_config", "model_type", ".", "text_config."}) {
    ExpectRefused(Part(model, name), "spec.sub_config: no object");
  }
}

TEST(ConfigJsonTest, AVisionTowerIsNotItsLanguageModel) {
  ExpectRefused(
      Part(R"({"vision_config": {"model_type": "llama", "head_dim": 64}})", "vision_config"),
      "is not known");
}

TEST(ConfigJsonTest, SectionsAreTheClassesOwnUnlessTheFileHasThem) {
  const std::string head = R"({"model_type": "qwen3_vl_text", "rope_parameters": {)";
  EXPECT_THAT(Read(Config(head + "}}")).mrope_section, ::testing::ElementsAre(24, 20, 20));
  ExpectRefused(Config(head + R"("mrope_section": [24, 20, 20], "mrope_interleaved": false}})"),
                "mrope_interleaved: false; must be true");
  const Spec spec = Read(Config(head + R"("mrope_section": [24, 20, 20]}})"));
  EXPECT_EQ(spec.axis_rule, AxisRule::kMropeInterleaved);
  EXPECT_EQ(spec.axes, 3);
}

TEST(ConfigJsonTest, ModelsThatAreScaledByDefaultAreScaledWhereTheFileSaysNothing) {
  const Spec spec = Read(Config(R"({"model_type": "gpt_oss"})"));
  const auto* const yarn = std::get_if<YarnScaling>(&spec.rope_scaling);
  ASSERT_NE(yarn, nullptr);
  EXPECT_EQ(yarn->factor, 32);
  EXPECT_EQ(yarn->truncate, false);
  EXPECT_EQ(spec.rope_theta, 150000);
}

// What a class does not read is refused: esm reads no dictionary, GPT-NeoX another name of the
// base.
TEST(ConfigJsonTest, KeysThatOnlyOtherClassesReadAreRefused) {
  ExpectRefused(Config(R"({"model_type": "esm", "position_embedding_type": "rotary",
                           "rope_scaling": {"type": "linear", "factor": 2}})"),
                "rope_scaling: is nothing that model_type esm reads");
  ExpectRefused(Config(R"({"model_type": "gpt_neox", "rope_theta": 5e5})"),
                "rope_theta: is nothing that model_type gpt_neox reads");
  ExpectRefused(Config(R"({"model_type": "gpt_neox_japanese", "rope_theta": 5e5})"),
                "rope_theta: is nothing that model_type gpt_neox_japanese reads");
  ExpectRefused(Config(R"({"model_type": "gpt_neox", "partial_rotary_factor": 0.5})"),
                "partial_rotary_factor: is nothing that model_type gpt_neox reads");
  for (const std::string more : {"", R"(, "rope_scaling": {})"}) {
    ExpectRefused(Config(R"({"model_type": "apertus", "rope_theta": 5e5)" + more + "}"),
                  "but model_type apertus has");
  }
  ExpectRefused(Config(R"({"model_type": "gpt_oss", "rope_parameters": {"rope_type": "default",
                           "rope_theta": 1e4, "partial_rotary_factor": 0.5}})"),
                "rotates whole heads");
  ExpectRefused(Config(Llama(R"("rotary_dim": 64)")), "rotary_dim: 64 contradicts head_dim 128");
}

TEST(ConfigJsonTest, RopeInterleavedMayConfirmThePairing) {
  EXPECT_EQ(Read(Config(Llama(R"("rope_interleaved": false)"))).pairing, Pairing::kHalfSplit);
  ExpectRefused(Config(Llama(R"("rope_interleaved": true)")), "rope_interleaved");
}

TEST(ConfigJsonTest, ALayerThatASwitchTurnsOffDoesNotRotate) {
  ExpectRefused(Config(R"({"model_type": "zamba2"})"), "use_mem_rope: must be true");
  ExpectRefused(Config(R"({"model_type": "zamba2", "use_mem_rope": 1})"), "must be true");
  EXPECT_EQ(Read(Config(R"({"model_type": "zamba2", "use_mem_rope": true})")).head_dim, 160);
  ExpectRefused(Config(R"({"model_type": "esm"})"), R"(position_embedding_type: must be "rotary")");
  ExpectRefused(Config(R"({"model_type": "wav2vec2-conformer",
                           "position_embeddings_type": "relative"})"),
                R"(position_embeddings_type: must be "rotary")");
  const Spec conformer = Read(Config(R"({"model_type": "wav2vec2-conformer",
      "position_embeddings_type": "rotary", "rotary_embedding_base": 5000})"));
  EXPECT_EQ(conformer.head_dim, 64);
  EXPECT_EQ(conformer.rope_theta, 5000);
}

// Bytes changed at random must give a spec or INVALID_ARGUMENT.

}  // namespace
}  // namespace phasor
