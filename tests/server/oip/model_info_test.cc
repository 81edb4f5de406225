// SPDX-License-Identifier: Apache-2.0
// Tests what clients are told about models and rely on.
#include "server/oip/model_info.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/server/oip/requests.h"

namespace phasor::oip {
namespace {

TEST(ModelInfoTest, EveryTensorOfAConfigurationIsInTheMetadata) {
  for (const ModelRef& ref : PresetSet().models()) {
    const Model& model = *ref;
    const inference::ModelMetadataResponse metadata = MetadataOf(model);
    const inference::ModelConfig config = ConfigOf(model);
    std::set<std::string> names;
    for (const auto& tensor : metadata.inputs()) names.insert(tensor.name());
    for (const auto& tensor : metadata.outputs()) names.insert(tensor.name());
    for (const auto& tensor : config.input()) {
      EXPECT_EQ(names.count(tensor.name()), 1u) << model.name;
      EXPECT_NE(tensor.data_type(), inference::TYPE_INVALID) << model.name;
    }
    for (const auto& tensor : config.output()) {
      EXPECT_EQ(names.count(tensor.name()), 1u) << model.name;
      EXPECT_NE(tensor.data_type(), inference::TYPE_INVALID) << model.name;
    }
    EXPECT_EQ(config.max_batch_size(), 0);
  }
}

TEST(ModelInfoTest, MetadataSaysTypeShapeAndWhatIsMissing) {
  const inference::ModelMetadataResponse metadata = MetadataOf(PresetModel("transformer"));
  ASSERT_EQ(metadata.versions_size(), 1);
  EXPECT_EQ(metadata.versions(0), "1");
  EXPECT_EQ(metadata.inputs(0).name(), "POSITIONS");
  EXPECT_EQ(metadata.inputs(0).datatype(), "INT64");
  EXPECT_EQ(metadata.inputs(0).shape(0), -1);
  EXPECT_EQ(metadata.properties().at("required_parameters"), "dim");
}

TEST(ModelInfoTest, AnEncoderSaysItsBaseAndItsFingerprint) {
  Spec spec;
  spec.preset = "transformer";
  spec.dim = 24;
  const auto encoders = EncoderSet::Make({{"rows", spec}});
  ASSERT_TRUE(encoders.ok());
  const inference::ModelMetadataResponse metadata = MetadataOf(*ModelSet(*encoders).Find("rows"));
  EXPECT_EQ(metadata.properties().at("source"), "preset transformer");
  EXPECT_EQ(metadata.properties().at("required_parameters"), "");
  EXPECT_EQ(metadata.properties().at("spec_fingerprint"),
            encoders->encoders().at("rows").fingerprint);
  EXPECT_EQ(MetadataOf(PresetModel("transformer")).properties().count("spec_fingerprint"), 0u);
}

TEST(ModelInfoTest, OptionalInputsAreMarkedInTheConfiguration) {
  const inference::ModelConfig config = ConfigOf(PresetModel("llama-3"));
  EXPECT_FALSE(config.input(1).optional());
  EXPECT_EQ(config.input(2).name(), "K");
  EXPECT_TRUE(config.input(2).optional());
}

TEST(ModelInfoTest, TheIndexListsEveryModelAsReady) {
  const inference::RepositoryIndexResponse index = IndexOf(PresetSet());
  ASSERT_EQ(index.models_size(), static_cast<int>(PresetSet().models().size()));
  for (const auto& model : index.models()) {
    EXPECT_EQ(model.state(), "READY");
    EXPECT_EQ(model.version(), "1");
  }
}

}  // namespace
}  // namespace phasor::oip
