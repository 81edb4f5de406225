// SPDX-License-Identifier: Apache-2.0
// Turns a Hugging Face config.json into the base of a spec: the rotary embedding that transformers
// computes for the model. docs/presets.md has the rules. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_JSON_H_
#define PHASOR_KERNELS_SPEC_CONFIG_JSON_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/json.h"
#include "kernels/spec/spec.h"

namespace phasor {

// Reads `user.config_json` into a spec over which `user` is then merged. `user.sub_config` and
// `user.layer_type` choose among several rotary embeddings. If the model_type is unknown,
// `user.pairing` must say which lanes form a pair; rope_theta and axis_rule, too, if the file does
// not. `path` is the path of the spec in messages. INVALID_ARGUMENT: not JSON, too large, a key
// that changes the numbers and is not supported, values that contradict each other, a missing
// required value, or an unknown model_type.
absl::StatusOr<Spec> SpecFromConfigJson(const Spec& user, std::string_view path);

// Parses `user.config_json`.
absl::StatusOr<Json> ParseConfigJson(const Spec& user, std::string_view path);

// All layers of one part of a configuration, in order.
struct ConfigLayerSpecs {
  struct Layer {
    std::string layer_type;           // empty: all layers are of one kind
    std::optional<size_t> spec = {};  // index; not set: the layer does not rotate
  };
  std::string model_type;
  std::vector<Layer> layers;
  std::vector<Spec> specs;  // the bases of the specs; some may be alike
};

// The most specs that are read of one file.
inline constexpr size_t kMaxModelSpecs = 64;

// Reads every layer of the part that `user.sub_config` chooses, as SpecFromConfigJson reads one.
// `root` is the parsed file. `kinds`: so many specs may be read at most; it is lowered.
absl::StatusOr<ConfigLayerSpecs> LayersFromConfigJson(const Json& root, const Spec& user,
                                                      std::string_view path, size_t* kinds);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_JSON_H_
