// SPDX-License-Identifier: Apache-2.0
// Resolves every layer of a model from its Hugging Face config.json. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_MODEL_LAYERS_H_
#define PHASOR_KERNELS_SPEC_MODEL_LAYERS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/spec/spec.h"

namespace phasor {

struct ModelLayer {
  std::string layer_type;           // empty: all layers are of one kind
  std::optional<size_t> spec = {};  // index; not set: the layer does not rotate
  friend bool operator==(const ModelLayer&, const ModelLayer&) = default;
};

// A model in a configuration: the language model, or a tower.
struct ModelPart {
  std::string sub_config;  // as in Spec; empty: the part that a spec without it means
  std::string model_type;  // by which it was read
  std::vector<ModelLayer> layers;
  std::string fingerprint;  // FingerprintOfLayers
  std::string error;        // why there are no layers
  friend bool operator==(const ModelPart&, const ModelPart&) = default;
};

// Layers that are alike share a spec; all specs differ.
struct ResolvedModel {
  std::vector<ResolvedSpec> specs;  // at most kMaxModelSpecs
  std::vector<ModelPart> parts;
};

// Every layer of the model that `spec.config_json` describes. If the spec has a sub_config, `parts`
// has this part alone. Otherwise it has the part that a spec without sub_config means, unless the
// file is only a frame, and then the others that the file has. Fields of the spec override the
// layers of the first of these, not those of the others. INVALID_ARGUMENT: as ResolveSpec,
// about the part that the spec means; spec.layer_type is set; layers of too many kinds.
absl::StatusOr<ResolvedModel> ResolveModel(const Spec& spec, std::string_view path = "spec");

// The same of one part: the one that the spec means.
absl::StatusOr<ResolvedModel> ResolveModelPart(const Spec& spec, std::string_view path = "spec");

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_MODEL_LAYERS_H_
