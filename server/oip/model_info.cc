// SPDX-License-Identifier: Apache-2.0
// Fills in the metadata, configuration and index messages of models.
#include "server/oip/model_info.h"

#include <string>

#include "absl/strings/str_join.h"
#include "server/oip/datatype.h"

namespace phasor::oip {
namespace {

void Describe(const TensorSlot& slot, inference::ModelMetadataResponse::TensorMetadata* out) {
  out->set_name(slot.name);
  out->set_datatype(std::string(DatatypeOf(slot.dtype)));
  for (const int64_t extent : slot.shape) out->add_shape(extent);
}

inference::DataType ConfigTypeOf(Dtype dtype) {
  inference::DataType type;
  const bool named = inference::DataType_Parse("TYPE_" + std::string(DatatypeOf(dtype)), &type);
  return named ? type : inference::TYPE_INVALID;
}

template <typename Tensor>
void Configure(const TensorSlot& slot, Tensor* out) {
  out->set_name(slot.name);
  out->set_data_type(ConfigTypeOf(slot.dtype));
  for (const int64_t extent : slot.shape) out->add_dims(extent);
}

}  // namespace

inference::ModelMetadataResponse MetadataOf(const Model& model) {
  inference::ModelMetadataResponse metadata;
  metadata.set_name(model.name);
  metadata.add_versions(std::string(kModelVersion));
  metadata.set_platform(kPlatform);
  for (const TensorSlot& slot : model.inputs) Describe(slot, metadata.add_inputs());
  for (const TensorSlot& slot : model.outputs) Describe(slot, metadata.add_outputs());
  auto& properties = *metadata.mutable_properties();
  properties["summary"] = model.summary;
  properties["source"] = model.source;
  properties["required_parameters"] = absl::StrJoin(model.required_parameters, ",");
  if (!model.fingerprint.empty()) properties["spec_fingerprint"] = model.fingerprint;
  return metadata;
}

inference::ModelConfig ConfigOf(const Model& model) {
  inference::ModelConfig config;
  config.set_name(model.name);
  config.set_platform(kPlatform);
  config.set_backend(kPlatform);
  for (const TensorSlot& slot : model.inputs) {
    inference::ModelInput* input = config.add_input();
    Configure(slot, input);
    input->set_optional(slot.optional);
  }
  for (const TensorSlot& slot : model.outputs) Configure(slot, config.add_output());
  return config;
}

inference::RepositoryIndexResponse IndexOf(const ModelSet& models) {
  inference::RepositoryIndexResponse index;
  for (const ModelRef& model : models.models()) {
    auto* entry = index.add_models();
    entry->set_name(model->name);
    entry->set_version(kModelVersion);
    entry->set_state("READY");
  }
  return index;
}

}  // namespace phasor::oip
