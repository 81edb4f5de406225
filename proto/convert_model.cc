// SPDX-License-Identifier: Apache-2.0
#include "proto/convert_model.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "proto/convert_spec.h"

namespace phasor {

v1::ResolveModelResponse ToWire(const ModelDetails& details) {
  v1::ResolveModelResponse wire;
  for (const ModelSpec& spec : details.specs) {
    v1::ModelSpec* const out = wire.add_specs();
    *out->mutable_spec() = ToWire(spec.spec);
    out->set_fingerprint(spec.fingerprint);
    out->set_amplitude(spec.amplitude);
    out->set_width(spec.width);
  }
  for (const ModelPart& part : details.parts) {
    v1::ModelPart* const out = wire.add_parts();
    out->set_sub_config(part.sub_config);
    out->set_model_type(part.model_type);
    out->set_fingerprint(part.fingerprint);
    out->set_error(part.error);
    for (const ModelLayer& layer : part.layers) {
      v1::ModelLayer* const entry = out->add_layers();
      entry->set_layer_type(layer.layer_type);
      if (layer.spec.has_value()) entry->set_spec(static_cast<int64_t>(*layer.spec));
    }
  }
  return wire;
}

absl::StatusOr<ModelDetails> ModelDetailsFromWire(const v1::ResolveModelResponse& wire) {
  ModelDetails details;
  for (int i = 0; i < wire.specs_size(); ++i) {
    const v1::ModelSpec& from = wire.specs(i);
    ModelSpec& spec = details.specs.emplace_back();
    PHASOR_ASSIGN_OR_RETURN(spec.spec,
                            SpecFromWire(from.spec(), absl::StrCat("specs[", i, "].spec")));
    spec.fingerprint = from.fingerprint();
    spec.amplitude = from.amplitude();
    spec.width = from.width();
  }
  for (const v1::ModelPart& from : wire.parts()) {
    ModelPart& part = details.parts.emplace_back();
    part.sub_config = from.sub_config();
    part.model_type = from.model_type();
    part.fingerprint = from.fingerprint();
    part.error = from.error();
    for (const v1::ModelLayer& layer : from.layers()) {
      ModelLayer& out = part.layers.emplace_back(ModelLayer{layer.layer_type()});
      if (!layer.has_spec()) continue;
      if (layer.spec() < 0 || layer.spec() >= wire.specs_size()) {
        return Invalid("parts.layers.spec: ", layer.spec(), "; must be an index of specs, in [0, ",
                       wire.specs_size(), ")");
      }
      out.spec = static_cast<size_t>(layer.spec());
    }
  }
  return details;
}

}  // namespace phasor
