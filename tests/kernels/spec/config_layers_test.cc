// SPDX-License-Identifier: Apache-2.0
// Kinds of layers by pattern and by list. per_layer_config: the changes that are allowed, and the
// head width of a kind of layer.
#include "kernels/spec/config_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

// A configuration of three layers with `changes` as its per_layer_config.
Json ThreeLayers(const std::string& changes) {
  return Json::parse(R"({"layer_types": ["sliding_attention", "full_attention", "full_attention"],
                         "per_layer_config": )" +
                     changes + "}");
}

// A model whose heads have that width without head_dim in the configuration.
ConfigModel Wide(int64_t head_dim, bool latent = false) {
  ConfigModel model = GenericConfigModel(latent);
  model.kinds[0].head_dim = head_dim;
  return model;
}

absl::Status LayersOf(const std::string& changes, const ConfigModel& model = Wide(64),
                      bool width_is_given = false) {
  const Json json = ThreeLayers(changes);
  return CheckPerLayerConfig(JsonObject(json, "config"), model, width_is_given);
}

absl::StatusOr<std::optional<int64_t>> WidthOfKind(const JsonObject& config,
                                                   const std::string& layer_type) {
  ConfigLayer layer;
  layer.name = layer_type;
  return PerLayerHeadDim(config, layer, "spec");
}

absl::StatusOr<std::optional<int64_t>> WidthIn(const std::string& changes,
                                               const std::string& layer_type) {
  const Json json = ThreeLayers(changes);
  return WidthOfKind(JsonObject(json, "config"), layer_type);
}

void ExpectNoWidth(const absl::StatusOr<std::optional<int64_t>>& width,
                   const std::string& message) {
  EXPECT_THAT(width, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
}

TEST(ConfigLayersTest, WhatHasNothingToDoWithRotationMayChange) {
  EXPECT_THAT(LayersOf("null"), IsOk());
  EXPECT_THAT(LayersOf("{}"), IsOk());
  EXPECT_THAT(LayersOf(R"({"00": {"intermediate_size": 5, "num_key_value_heads": 1, "skip": []},
                           "2": {"head_dim": 32, "num_attention_heads": 9}})"),
              IsOk());
}

TEST(ConfigLayersTest, WhatChangesARotationIsNotRead) {
  for (const char* key : {"rope_theta", "rope_parameters", "partial_rotary_factor", "rotary_dim",
                          "qk_rope_head_dim", "qk_nope_head_dim"}) {
    EXPECT_THAT(LayersOf(R"({"1": {")" + std::string(key) + R"(": 32}})", Wide(0), true),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("config.per_layer_config: changes " + std::string(key) +
                                   ", which is not read for single layers; must be absent")));
  }
}

TEST(ConfigLayersTest, AWidthThatIsNotReadMayBeGiven) {
  const ConfigModel latent = Wide(64, true), divided = Wide(0);
  const struct {
    const char* changes;
    ConfigModel model;
  } cases[] = {{R"({"1": {"kv_channels": 32}})", Wide(64)},
               {R"({"1": {"swa_head_dim": 32}})", Wide(64)},
               {R"({"1": {"head_dim": null}})", Wide(64)},
               {R"({"1": {"head_dim": 32}})", latent},
               {R"({"1": {"num_attention_heads": 32}})", divided},
               {R"({"1": {"hidden_size": 32}})", divided}};
  for (const auto& [changes, model] : cases) {
    EXPECT_THAT(LayersOf(changes, model),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("must be beside the spec's own head_dim")))
        << changes;
    EXPECT_THAT(LayersOf(changes, model, true), IsOk()) << changes;
  }
}

TEST(ConfigLayersTest, RefusesWhatIsNoListOfLayers) {
  for (const char* changes : {"[]", "5", R"({"1": 5})", R"({"1": null})"}) {
    EXPECT_THAT(LayersOf(changes),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("config.per_layer_config")))
        << changes;
  }
}

TEST(ConfigLayersTest, LayersOfAKindHaveOneWidth) {
  const std::string changes = R"({"01": {"head_dim": 32}, "2": {"head_dim": 32}})";
  EXPECT_EQ(*WidthIn(changes, "full_attention"), 32);
  EXPECT_EQ(*WidthIn(changes, "sliding_attention"), std::nullopt);
  EXPECT_EQ(*WidthIn(R"({"1": {"skip": []}})", ""), std::nullopt);
  ExpectNoWidth(WidthIn(R"({"1": {"head_dim": 32}})", "full_attention"),
                "config.per_layer_config: gives full_attention layers 1 and 2 heads of different "
                "widths; must be beside the spec's own head_dim");
}

TEST(ConfigLayersTest, AWidthNeedsAKindOfLayerAndAKindItsLayers) {
  const std::string changes = R"({"0": {"head_dim": 32}})";
  ExpectNoWidth(WidthIn(changes, ""),
                "spec.layer_type: not set; must be one of config.layer_types");
  ExpectNoWidth(WidthIn(changes, "linear"), "spec.layer_type: linear; must be one of");
  const Json json = Json::parse(R"({"per_layer_config": {"0": {"head_dim": 32}}})");
  ExpectNoWidth(WidthOfKind(JsonObject(json, "config"), "full_attention"), "without layer_types");
}

TEST(ConfigLayersTest, RefusesWidthsOfNoLayerAndNoWidths) {
  for (const char* layer : {"3", "-1", "", "1x", "99999999999999999999"}) {
    ExpectNoWidth(
        WidthIn(R"({")" + std::string(layer) + R"(": {"head_dim": 32}})", "full_attention"),
        "is no layer; must be one of the 3 of layer_types");
  }
  ExpectNoWidth(WidthIn(R"({"1": {"head_dim": 0}})", "full_attention"),
                "config.per_layer_config.1.head_dim: 0; must be > 0");
  ExpectNoWidth(WidthIn(R"({"1": {"head_dim": "8"}})", "full_attention"), "per_layer_config.1");
}

// The kinds of the five layers of a configuration, by their first letters, or the refusal.
std::string KindsOf(const std::string& more, const ConfigModel& model) {
  const Json json = Json::parse(R"({"num_hidden_layers": 5)" + more + "}");
  std::string letters;
  for (int i = 0; i < 5; ++i) {
    const auto layer = ChooseLayer(JsonObject(json, "config"), model, std::to_string(i), "spec");
    if (!layer.ok()) return std::string(layer.status().message());
    letters += layer->name.empty() ? '-' : layer->name[0];
  }
  return letters;
}

ConfigModel Patterned(const std::vector<std::string>& pattern) {
  ConfigModel model = Wide(64);
  model.layer_pattern = pattern;
  model.period_keys = {"every"};
  model.pattern_keys = {"first_dense"};
  return model;
}

TEST(ConfigLayersTest, APeriodMakesThePatternLongerOrShorter) {
  const ConfigModel last = Patterned({"sliding", "sliding", "full"});
  EXPECT_EQ(KindsOf("", last), "ssfss");
  EXPECT_EQ(KindsOf(R"(, "every": 2)", last), "sfsfs");
  EXPECT_EQ(KindsOf(R"(, "every": 4)", last), "sssfs");
  EXPECT_EQ(KindsOf(R"(, "every": 1)", last), "fffff");
  EXPECT_EQ(KindsOf(R"(, "every": 2)", Patterned({"full", "sliding", "sliding"})), "fsfsf");
  EXPECT_EQ(KindsOf(R"(, "every": 0)", last), "config.every: 0; must be at least 1");
}

TEST(ConfigLayersTest, AnOrderThatNoRuleGivesNeedsAList) {
  ConfigModel model = Patterned({"sliding", "full"});
  EXPECT_EQ(KindsOf(R"(, "first_dense": 0)", model), "sfsfs");
  EXPECT_THAT(KindsOf(R"(, "first_dense": 2)", model),
              HasSubstr("config.layer_types: not set; must be given beside first_dense"));
  EXPECT_EQ(KindsOf(R"(, "first_dense": 2, "layer_types": ["f", "s", "s", "s", "s"])", model),
            "fssss");
  model.layer_pattern.clear();
  EXPECT_EQ(KindsOf("", model), "-----");
  model.still = {"full"};
  EXPECT_THAT(KindsOf("", model), HasSubstr("config.layer_types: not set; must be given since"));
}

TEST(ConfigLayersTest, TheLastLayerMayHaveAKindOfItsOwn) {
  ConfigModel model = Patterned({"sliding", "full"});
  model.last_layer = "full";
  EXPECT_EQ(KindsOf("", model), "sfsff");
  EXPECT_EQ(KindsOf(R"(, "layer_types": ["s", "s", "s", "s", "s"])", model), "ssssf");
}

TEST(ConfigLayersTest, AModelMayListItsLayersUnderAnotherName) {
  ConfigModel model = Wide(64);
  model.kinds_key = "block_types";
  EXPECT_EQ(KindsOf(R"(, "block_types": ["a", "b", "c", "d", "e"])", model), "abcde");
  model.attention_list = "attending";
  EXPECT_EQ(KindsOf(R"(, "attending": [1, 4])", model), "lfllf");
  EXPECT_EQ(KindsOf("", model), "lllll");
  std::string many = "0";
  for (int i = 0; i < 1024; ++i) many += ",0";
  EXPECT_THAT(KindsOf(R"(, "attending": [)" + many + "]", model), HasSubstr("must be at most"));
}

}  // namespace
}  // namespace phasor
