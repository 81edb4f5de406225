// SPDX-License-Identifier: Apache-2.0
// Reads what a Hugging Face config.json says about kinds of layers and single layers: which kind a
// layer is of, which layers do not rotate, bases and widths of single layers (`per_layer_config`,
// as transformers writes it). Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_LAYERS_H_
#define PHASOR_KERNELS_SPEC_CONFIG_LAYERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/json.h"
#include "kernels/spec/config_models.h"

namespace phasor {

// Used by JetMoe, Zamba, MiMo and T5. A class reads at most one.
inline constexpr const char* kHeadDimAliases[] = {"kv_channels", "attention_head_dim",
                                                  "swa_head_dim", "d_kv"};

// The layers that a spec's layer_type chooses.
struct ConfigLayer {
  std::string name;                  // the kind; empty: not set
  std::optional<int64_t> index;      // the layer, where layer_type is a number
  const ConfigKind* kind = nullptr;  // of the model; never nullptr
  std::optional<double> theta;       // base of this layer alone
  bool rotates = true;
  bool scaled = true;  // false: this layer's scaling is left out
};

// Chooses. Borrows the model. INVALID_ARGUMENT: a number that is no layer's; lists about layers
// that have no entry for it, or that differ between layers while no layer is chosen.
absl::StatusOr<ConfigLayer> ChooseLayer(const JsonObject& config, const ConfigModel& model,
                                        std::string_view layer_type, std::string_view spec_path);

// How many layers the model has. INVALID_ARGUMENT: neither the configuration nor the model says it.
absl::StatusOr<int64_t> ConfigLayerCount(const JsonObject& config, const ConfigModel& model);

// Checks per_layer_config. `width_is_given`: the caller sets the head's width, so widths in the
// configuration do not matter. INVALID_ARGUMENT: per_layer_config is not what transformers writes,
// or changes the rotation of a layer in a way that is not supported.
absl::Status CheckPerLayerConfig(const JsonObject& config, const ConfigModel& model,
                                 bool width_is_given);

// The head width that per_layer_config gives to the chosen layers; nullopt if the rest of the
// configuration gives it. `spec_path` is the path of the spec in messages. INVALID_ARGUMENT: it
// gives widths, but it is not clear which layers have them.
absl::StatusOr<std::optional<int64_t>> PerLayerHeadDim(const JsonObject& config,
                                                       const ConfigLayer& layer,
                                                       std::string_view spec_path);

// A copy of the keys that the functions above read, for readers of many layers.
Json KeysAboutLayers(const JsonObject& config, const ConfigModel& model);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_LAYERS_H_
