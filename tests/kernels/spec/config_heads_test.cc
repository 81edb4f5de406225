// SPDX-License-Identifier: Apache-2.0
// Widths of heads: which keys a class reads, and what it has where the file says nothing.
#include "kernels/spec/config_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/spec/configurations.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Config;
using testing::ExpectRefused;
using testing::Read;

TEST(ConfigHeadsTest, AFileThatSaysNothingHasTheClassesWidth) {
  EXPECT_EQ(Read(Config(R"({"model_type": "llama"})")).head_dim, 128);
  EXPECT_EQ(Read(Config(R"({"model_type": "gpt_neox"})")).head_dim, 96);
  const Spec deepseek = Read(Config(R"({"model_type": "deepseek_v3"})"));
  EXPECT_EQ(deepseek.head_dim, 192);
  EXPECT_EQ(deepseek.rotary_begin, 128);
}

TEST(ConfigHeadsTest, RotaryLanesAloneHaveNoContentBeforeThem) {
  Spec rows = Config(R"({"model_type": "deepseek_v3"})");
  rows.head_dim = 64;
  const auto resolved = ResolveSpec(rows);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->head_dim, 64);
  EXPECT_EQ(resolved->rotary_begin, 0);
  EXPECT_EQ(resolved->rotary_dim, 64);
}

TEST(ConfigHeadsTest, AClassReadsItsOwnNameOfTheWidth) {
  EXPECT_EQ(Read(Config(R"({"model_type": "jetmoe", "kv_channels": 64})")).head_dim, 64);
  ExpectRefused(Config(R"({"model_type": "llama", "kv_channels": 64})"),
                "kv_channels: 64 contradicts head_dim 128");
}

// What transformers 5.23 computes with these dictionaries.
class OwnDictionaryTest : public ::testing::Test {
 protected:
  static Spec Full(const std::string& model_type, const std::string& dictionary) {
    return testing::Layer(R"({"model_type": ")" + model_type +
                              R"(", "rope_parameters": {"full_attention": {)" + dictionary +
                              R"(, "rope_theta": 1e6}, "sliding_attention":
                                 {"rope_type": "default", "rope_theta": 1e4}}})",
                          "full_attention");
  }
};

TEST_F(OwnDictionaryTest, TheShareOfTheClassBelongsToItsOwnDictionary) {
  for (const std::string dictionary :
       {R"("rope_type": "default")", R"("rope_type": "linear", "factor": 8.0)"}) {
    for (const std::string model_type : {"gemma4_text", "lfm3"}) {
      const Spec whole = Read(Full(model_type, dictionary));
      EXPECT_FALSE(whole.partial_rotary_factor.has_value()) << model_type << dictionary;
      EXPECT_FALSE(whole.live_pairs.has_value()) << model_type << dictionary;
    }
  }
  const std::string share = R"(, "partial_rotary_factor": 0.25)";
  EXPECT_EQ(Read(Full("gemma4_text", R"("rope_type": "proportional")" + share)).live_pairs, 64);
  ExpectRefused(Full("gemma4_text", R"("rope_type": "default")" + share),
                "partial_rotary_factor: 0.25, model_type gemma4_text rotates whole heads");
}

TEST_F(OwnDictionaryTest, AScalingWithoutTheShareIsRefusedWhereItWouldMeanWholeHeads) {
  const std::string yarn =
      R"("rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768)";
  ExpectRefused(Full("mimo_v2_flash", yarn),
                "rope_parameters: without partial_rotary_factor for full_attention layers");
  EXPECT_EQ(Read(Full("mimo_v2_flash", yarn + R"(, "partial_rotary_factor": 0.334)"))
                .partial_rotary_factor,
            0.334);
  EXPECT_EQ(Read(Full("mimo_v2_flash", R"("rope_type": "default")")).partial_rotary_factor, 0.334);
}

// transformers takes them for keys of one dictionary there, and scales nothing.
TEST(OwnDictionariesTest, DictionariesOfEachKindHaveTheirNewName) {
  for (const std::string model_type : {"gemma3_text", "modernbert"}) {
    ExpectRefused(testing::Layer(R"({"model_type": ")" + model_type + R"(", "rope_scaling": {
        "full_attention": {"rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_type": "default"}}})",
                                 "full_attention"),
                  "rope_scaling: has a dictionary for each kind of layers; must be called "
                  "rope_parameters");
  }
}

// transformers takes it for a dictionary, in place of the class's own.
TEST(OwnDictionariesTest, AnEmptyDictionaryIsRefusedWhereTheClassHasOne) {
  ExpectRefused(Config(R"({"model_type": "gpt_oss", "rope_parameters": {}})"),
                "rope_parameters: empty; must have values or be absent");
  EXPECT_EQ(Read(Config(R"({"model_type": "gpt_oss", "rope_scaling": {}})")),
            Read(Config(R"({"model_type": "gpt_oss"})")));
  Read(Config(testing::Llama(R"("rope_parameters": {})")));
}

TEST(ConfigHeadsTest, AProportionalLadderTurnsTheShareOfTheClass) {
  const std::string proportional = R"(, "rope_scaling": {"rope_type": "proportional"}})";
  EXPECT_EQ(Read(Config(R"({"model_type": "glm4")" + proportional)).live_pairs, 32);
  EXPECT_EQ(Read(Config(R"({"model_type": "qwen3_next")" + proportional)).live_pairs, 32);
  EXPECT_EQ(Read(Config(R"({"model_type": "llama")" + proportional)).live_pairs, 64);
}

TEST(ConfigHeadsTest, ANullShareIsRefusedWhereTheClassHasOne) {
  ExpectRefused(Config(R"({"model_type": "glm4", "partial_rotary_factor": null})"),
                "partial_rotary_factor: null; must be a number or absent");
  Read(Config(R"({"model_type": "gpt_oss", "partial_rotary_factor": null})"));
  const std::string minimax = R"({"model_type": "minimax_m2", "partial_rotary_factor": null)";
  ExpectRefused(Config(minimax + R"(, "rotary_dim": 64})"),
                "partial_rotary_factor: null; must be a number or absent");
  EXPECT_EQ(Read(Config(minimax + "}")).rotary_dim, std::nullopt);
}

TEST(ConfigHeadsTest, AWidthThatDoesNotDivideIsRefused) {
  ExpectRefused(Config(R"({"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3})"),
                "hidden_size 100 does not split evenly over 3 heads");
}

}  // namespace
}  // namespace phasor
