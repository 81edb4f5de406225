// SPDX-License-Identifier: Apache-2.0
// Tests that every preset and every configured encoder is a model.
#include "server/oip/model_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "server/oip/datatype.h"
#include "tests/server/oip/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor::oip {
namespace {

using ::phasor::testing::IsOk;
using ::testing::ElementsAre;

TEST(ModelCatalogueTest, EveryPresetIsAModelOfItsNameOnce) {
  std::set<std::string> names;
  for (const Preset& preset : Presets()) names.insert(preset.name);
  for (const BiasPreset& preset : BiasPresets()) names.insert(preset.name);
  EXPECT_EQ(PresetSet().models().size(), Presets().size() + BiasPresets().size());
  EXPECT_EQ(PresetSet().models().size(), names.size());
  for (const std::string& name : names) {
    const ModelRef model = PresetSet().Find(name);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(model->name, name);
    EXPECT_FALSE(model->inputs.empty());
    EXPECT_FALSE(model->outputs.empty());
  }
}

TEST(ModelCatalogueTest, UnknownNamesAreNoModels) {
  for (const char* name : {"", "llama", "zzz", "Transformer"})
    EXPECT_EQ(PresetSet().Find(name), nullptr);
}

TEST(ModelCatalogueTest, ShapesStateWhatThePresetFixes) {
  const Model& llama = PresetModel("llama-3.1-8b");
  EXPECT_EQ(llama.kind, ModelKind::kRotary);
  EXPECT_EQ(NamesOf(llama.inputs), "POSITIONS, Q, K, FROM_POSITIONS");
  EXPECT_THAT(llama.inputs[0].shape, ElementsAre(-1));
  EXPECT_THAT(llama.inputs[1].shape, ElementsAre(-1, -1, 128));

  const Model& video = PresetModel("cogvideox-2b");
  EXPECT_EQ(video.kind, ModelKind::kEncoding);
  EXPECT_THAT(video.inputs[0].shape, ElementsAre(-1, 3));
  EXPECT_THAT(video.outputs[0].shape, ElementsAre(-1, 1920));

  const Model& open = PresetModel("transformer");
  EXPECT_THAT(open.outputs[0].shape, ElementsAre(-1, -1));
  EXPECT_THAT(open.required_parameters, ElementsAre("dim"));
}

EncoderSet Encoders(const std::vector<NamedSpec>& encoders) {
  auto set = EncoderSet::Make(encoders);
  EXPECT_THAT(set, IsOk());
  return *std::move(set);
}

TEST(ModelCatalogueTest, EveryEncoderIsAModelWithNothingLeftOpen) {
  Spec table;
  table.preset = "transformer";
  table.dim = 24;
  Spec heads;
  heads.preset = "rope-half-split";
  heads.head_dim = 80;
  const EncoderSet encoders = Encoders({{"rows", table}, {"a.heads", heads}});
  const ModelSet models(encoders);
  EXPECT_EQ(models.models().size(), PresetSet().models().size() + 2);
  EXPECT_EQ(models.models()[0]->name, "a.heads");

  const ModelRef rows = models.Find("rows");
  ASSERT_NE(rows, nullptr);
  EXPECT_EQ(rows->kind, ModelKind::kEncoding);
  EXPECT_THAT(rows->outputs[0].shape, ElementsAre(-1, 24));
  EXPECT_THAT(rows->required_parameters, ElementsAre());
  EXPECT_EQ(rows->fingerprint, encoders.encoders().at("rows").fingerprint);
  const ModelRef rotary = models.Find("a.heads");
  ASSERT_NE(rotary, nullptr);
  EXPECT_EQ(rotary->kind, ModelKind::kRotary);
  EXPECT_THAT(rotary->inputs[1].shape, ElementsAre(-1, -1, 80));
}

TEST(ModelCatalogueTest, AnEncoderTakesThePlaceOfThePresetOfItsName) {
  Spec spec;
  spec.preset = "transformer";
  spec.dim = 24;
  const ModelSet models(Encoders({{"llama-3.1-8b", spec}}));
  EXPECT_EQ(models.models().size(), PresetSet().models().size());
  EXPECT_EQ(models.Find("llama-3.1-8b")->kind, ModelKind::kEncoding);
}

TEST(ModelCatalogueTest, WhoHasAModelKeepsItThroughAReplacement) {
  Spec spec;
  spec.preset = "transformer";
  spec.dim = 24;
  ModelCatalogue catalogue;
  EXPECT_EQ(catalogue.Get()->Find("rows"), nullptr);
  catalogue.Replace(Encoders({{"rows", spec}}));
  const ModelRef before = catalogue.Get()->Find("rows");
  spec.dim = 32;
  catalogue.Replace(Encoders({{"rows", spec}}));
  EXPECT_EQ(before->spec.dim, 24);
  EXPECT_EQ(catalogue.Get()->Find("rows")->spec.dim, 32);
  catalogue.Replace({});
  EXPECT_EQ(catalogue.Get()->Find("rows"), nullptr);
}

TEST(ModelCatalogueTest, EverySlotHasATypeOfTheProtocol) {
  for (const ModelRef& ref : PresetSet().models()) {
    const Model& model = *ref;
    for (const TensorSlot& slot : model.inputs) EXPECT_NE(DatatypeOf(slot.dtype), "") << model.name;
    for (const TensorSlot& slot : model.outputs) {
      EXPECT_EQ(DtypeOf(DatatypeOf(slot.dtype)), slot.dtype) << model.name;
    }
  }
}

}  // namespace
}  // namespace phasor::oip
