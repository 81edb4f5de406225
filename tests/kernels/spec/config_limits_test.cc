// SPDX-License-Identifier: Apache-2.0
// The time that a hostile configuration takes, and how much of it an error repeats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/spec/config_json.h"
#include "tests/kernels/spec/configurations.h"
#include "tests/support/cpu_time.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Config;
using testing::ExpectRefused;
using testing::IsOk;
using testing::Layer;
using testing::Llama;
using testing::Part;

// `count` keys in addition to those that are read.
std::string ManyKeys(int count) {
  std::string keys = R"("other": 0)";
  for (int i = 1; i < count; ++i) keys += ", \"k" + std::to_string(i) + "\": 0";
  return keys;
}

TEST(ConfigLimitsTest, TimeGrowsWithTheKeysNotTheirSquare) {
  const auto seconds = [](int keys) {
    const Spec spec = Config(Llama(ManyKeys(keys)));
    return testing::LeastSeconds([&] { EXPECT_THAT(SpecFromConfigJson(spec, "spec"), IsOk()); });
  };
  EXPECT_LT(seconds(40000), testing::kMostGrowth * seconds(10000));
}

TEST(ConfigLimitsTest, MoreKeysThanAnyModelHasAreRefused) {
  ExpectRefused(Config(Llama(ManyKeys(80000))), "spec.config_json: more than 65536 values");
}

// A caller may send megabytes; an error is one line.
TEST(ConfigLimitsTest, ErrorsShowTheBeginningOfLongNames) {
  const std::string name(100000, 'n');
  const std::string rope = R"("rope_parameters": {"rope_type": ")" + name + "\"}";
  const std::string nested = R"("rope_parameters": {")" + name + R"(": {"factor": "x"}})";
  const std::string section = R"({")" + name + R"(": {"model_type": "llama", "head_dim": "x"}})";
  for (const Spec& spec :
       {Config(Llama(rope)), Layer(Llama(nested), name), Layer(Llama(nested), "other"),
        Layer(Llama(""), name), Part(Llama(""), name), Part(section, name),
        Config(R"({"model_type": ")" + name + "\"}"),
        Layer(R"({"model_type": "gemma3_text"})", name)}) {
    const absl::Status status = SpecFromConfigJson(spec, "spec").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(status.message().size(), 600u) << status.message().substr(0, 600);
  }
}

TEST(ConfigLimitsTest, AMissingKindOfLayerListsNoMoreThanTen) {
  std::string kinds = R"("rope_parameters": {"a": {})";
  for (char kind = 'b'; kind <= 'z'; ++kind) kinds += std::string(", \"") + kind + "\": {}";
  ExpectRefused(Layer(Llama(kinds + "}"), "full"),
                "must be one of a, b, c, d, e, f, g, h, i, j, ... (spec.config_json");
}

TEST(ConfigLimitsTest, SurvivesAnyBytes) {
  const std::vector<std::string> seeds = {
      Llama(R"("rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings":
              2048, "mscale": 1e300}, "max_position_embeddings": 8192)"),
      R"({"model_type": "phi3", "head_dim": 4, "max_position_embeddings": 9, "rope_scaling": {"type":
          "su", "short_factor": [1, 2], "long_factor": [3, 4], "original_max_position_embeddings": 3}})",
      R"({"text_config": {"model_type": "gemma4_text", "rope_parameters": {"full_attention":
          {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}}}})",
      R"({"model_type": "qwen3", "layer_types": ["full_attention"], "per_layer_config":
          {"0": {"head_dim": 64}}})",
      R"({"model_type": "deepseek_v3", "qk_nope_head_dim": 128, "qk_rope_head_dim": 64})"};
  const std::string alphabet = "{}[]\",:0123456789.eE-+ntrufalsx\\\xff";
  std::mt19937_64 random(7);
  int answers = 0;
  for (int run = 0; run < 20000; ++run) {
    std::string text = seeds[random() % seeds.size()];
    for (uint64_t changes = random() % 6; changes > 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
          break;
        default:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
      if (text.empty()) text = "{";
    }
    const auto spec = SpecFromConfigJson(Layer(text, run % 2 == 0 ? "" : "full_attention"), "spec");
    answers += spec.ok();
    if (spec.ok()) continue;
    ASSERT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_GT(answers, 1000);  // many of them are valid configurations
}

}  // namespace
}  // namespace phasor
