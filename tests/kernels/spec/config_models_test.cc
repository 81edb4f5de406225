// SPDX-License-Identifier: Apache-2.0
// The table of model_types. tests/conformance/configs_test.cc compares its values with
// transformers.
#include "kernels/spec/config_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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
  for (const ConfigModel& model : ConfigModels()) {
    EXPECT_TRUE(std::isfinite(model.rope_theta) && model.rope_theta > 1) << model.model_type;
    EXPECT_TRUE(model.partial_rotary_factor >= 0 && model.partial_rotary_factor <= 1)
        << model.model_type;
    EXPECT_FALSE(model.vision && model.mrope.has_value()) << model.model_type;
    // No model reads half-split and writes interleaved.
    EXPECT_FALSE(model.pairing == Pairing::kHalfSplit && model.pairing_out == Pairing::kInterleaved)
        << model.model_type;
  }
}

}  // namespace
}  // namespace phasor
