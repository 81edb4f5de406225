// SPDX-License-Identifier: Apache-2.0
// Resolves every layer of a model from its Hugging Face config.json. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_MODEL_LAYERS_H_
#define PHASOR_KERNELS_SPEC_MODEL_LAYERS_H_

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/spec/spec.h"

namespace phasor {

// The spec of every layer of the model that `spec.config_json` describes, in order; nullopt for a
// layer that does not rotate. `spec.sub_config` chooses a part of the file, other fields override
// all layers. `spec.layer_type` must not be set. INVALID_ARGUMENT: as ResolveSpec; messages say
// which layer. Layers that are alike are resolved once.
absl::StatusOr<std::vector<std::optional<ResolvedSpec>>> ResolveModel(
    const Spec& spec, std::string_view path = "spec");

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_MODEL_LAYERS_H_
