// SPDX-License-Identifier: Apache-2.0
// The table of model_types. tests/conformance/configs_test.cc compares its values with
// transformers.
#include "kernels/spec/config_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

TEST(ConfigModelsTest, AreSortedAndUnique) {
  const auto models = ConfigModels();
  EXPECT_EQ(std::adjacent_find(models.begin(), models.end(),
                               [](const ConfigModel& a, const ConfigModel& b) {
                                 return a.model_type >= b.model_type;
                               }),
            models.end());
}

TEST(ConfigModelsTest, EachIsFoundByItsNameAndNoOtherIs) {
  for (const ConfigModel& model : ConfigModels()) {
    EXPECT_EQ(FindConfigModel(model.model_type), &model) << model.model_type;
  }
  for (const char* name : {"", "bert", "llama5", "zzz"}) EXPECT_EQ(FindConfigModel(name), nullptr);
}

TEST(ConfigModelsTest, ValuesMakeSense) {
  EXPECT_GT(ConfigModels().size(), 200u);
  for (const ConfigModel& model : ConfigModels()) {
    ASSERT_FALSE(model.kinds.empty()) << model.model_type;
    EXPECT_EQ(model.vision() || !model.mrope_section.empty(), model.axis_rule.has_value())
        << model.model_type;
    for (const ConfigKind& kind : model.kinds) {
      EXPECT_TRUE(std::isfinite(kind.theta) && kind.theta > 1) << model.model_type;
      EXPECT_TRUE(kind.partial >= 0 && kind.partial <= 1) << model.model_type;
      EXPECT_TRUE(kind.latent.empty() || kind.latent.size() == 2) << model.model_type;
      EXPECT_TRUE(kind.rope.is_null() || kind.rope.is_object()) << model.model_type;
      EXPECT_EQ(kind.name.empty(), model.kinds.size() == 1 && !model.nested()) << model.model_type;
    }
    // No model reads half-split and writes interleaved.
    EXPECT_FALSE(model.pairing == Pairing::kHalfSplit && model.pairing_out == Pairing::kInterleaved)
        << model.model_type;
  }
}

TEST(ConfigModelsTest, PartsOfCompositeModelsAreKnown) {
  for (const auto& [part, model_type] : ConfigParts("qwen3_vl")) {
    EXPECT_NE(FindConfigModel(model_type), nullptr) << part;
  }
  EXPECT_EQ(ConfigParts("qwen3_vl").count("text_config"), 1u);
  EXPECT_TRUE(ConfigParts("llama").empty());
}

TEST(ConfigModelsTest, ATableOfAnotherFormIsRefused) {
  EXPECT_THAT(ConfigTableFromJson(R"({"parts": {}, "models": []})"), testing::IsOk());
  for (const char* text :
       {"[]", R"({"models": []})", R"({"parts": {}})",
        R"({"parts": {}, "models": [{"model_type": "a", "pairing": "DIAGONAL"}]})",
        R"({"parts": {}, "models": [{"model_type": 3}]})"}) {
    EXPECT_FALSE(ConfigTableFromJson(text).ok()) << text;
  }
}

}  // namespace
}  // namespace phasor
