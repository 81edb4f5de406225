// SPDX-License-Identifier: Apache-2.0
// Turns a Hugging Face config.json into the base of a spec: the rotary embedding that transformers
// computes for the model. docs/presets.md has the rules. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_JSON_H_
#define PHASOR_KERNELS_SPEC_CONFIG_JSON_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/spec/spec.h"

namespace phasor {

// Reads `user.config_json` into a spec over which `user` is then merged. `user.sub_config` and
// `user.layer_type` choose among several rotary embeddings. If the model_type is unknown,
// `user.pairing` must say which lanes form a pair; rope_theta and axis_rule, too, if the file does
// not. `path` is the path of the spec in messages. INVALID_ARGUMENT: not JSON, too large, a key
// that changes the numbers and is not supported, values that contradict each other, a missing
// required value, or an unknown model_type.
absl::StatusOr<Spec> SpecFromConfigJson(const Spec& user, std::string_view path);

// The spec of the layers that `user.layer_type` chooses (a kind, or the number of a layer), as
// above; nullopt: these layers do not rotate.
absl::StatusOr<std::optional<Spec>> LayerFromConfigJson(const Spec& user, std::string_view path);

// How many layers the model has.
absl::StatusOr<int64_t> LayersOfConfigJson(const Spec& user, std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_JSON_H_
