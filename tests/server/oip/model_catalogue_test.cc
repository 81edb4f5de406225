// SPDX-License-Identifier: Apache-2.0
// Every preset is a model.
#include "server/oip/model_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/oip/datatype.h"

namespace phasor::oip {
namespace {

using ::testing::ElementsAre;

TEST(ModelCatalogueTest, EveryPresetIsAModelOfItsNameOnce) {
  std::set<std::string> names;
  for (const Preset& preset : Presets()) names.insert(preset.name);
  for (const BiasPreset& preset : BiasPresets()) names.insert(preset.name);
  EXPECT_EQ(Models().size(), Presets().size() + BiasPresets().size());
  EXPECT_EQ(Models().size(), names.size());
  for (const std::string& name : names) {
    const Model* const model = FindModel(name);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(model->name, name);
    EXPECT_FALSE(model->inputs.empty());
    EXPECT_FALSE(model->outputs.empty());
  }
}

TEST(ModelCatalogueTest, UnknownNamesAreNoModels) {
  for (const char* name : {"", "llama", "zzz", "Transformer"}) EXPECT_EQ(FindModel(name), nullptr);
}

TEST(ModelCatalogueTest, ShapesStateWhatThePresetFixes) {
  const Model& llama = *FindModel("llama-3.1-8b");
  EXPECT_EQ(llama.kind, ModelKind::kRotary);
  EXPECT_EQ(NamesOf(llama.inputs), "POSITIONS, Q, K, FROM_POSITIONS");
  EXPECT_THAT(llama.inputs[0].shape, ElementsAre(-1));
  EXPECT_THAT(llama.inputs[1].shape, ElementsAre(-1, -1, 128));

  const Model& video = *FindModel("cogvideox-2b");
  EXPECT_EQ(video.kind, ModelKind::kEncoding);
  EXPECT_THAT(video.inputs[0].shape, ElementsAre(-1, 3));
  EXPECT_THAT(video.outputs[0].shape, ElementsAre(-1, 1920));

  const Model& open = *FindModel("transformer");
  EXPECT_THAT(open.outputs[0].shape, ElementsAre(-1, -1));
  EXPECT_THAT(open.required_parameters, ElementsAre("dim"));
}

TEST(ModelCatalogueTest, EverySlotHasATypeOfTheProtocol) {
  for (const Model& model : Models()) {
    for (const TensorSlot& slot : model.inputs) EXPECT_NE(DatatypeOf(slot.dtype), "") << model.name;
    for (const TensorSlot& slot : model.outputs) {
      EXPECT_EQ(DtypeOf(DatatypeOf(slot.dtype)), slot.dtype) << model.name;
    }
  }
}

}  // namespace
}  // namespace phasor::oip
