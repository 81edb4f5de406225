// SPDX-License-Identifier: Apache-2.0
// Reads what a Hugging Face config.json says about single layers (`per_layer_config`, as
// transformers 5.23.0 writes it), and names the keys other than head_dim that hold a head's width
// in some files. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_LAYERS_H_
#define PHASOR_KERNELS_SPEC_CONFIG_LAYERS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/json.h"
#include "kernels/spec/config_models.h"

namespace phasor {

// Used by JetMoe, Zamba, MiMo and T5. Only JetMoe's is read.
inline constexpr const char* kHeadDimAliases[] = {"kv_channels", "attention_head_dim",
                                                  "swa_head_dim", "d_kv"};

// Checks per_layer_config. `width_is_given`: the caller sets the head's width, so widths in the
// configuration do not matter. INVALID_ARGUMENT: per_layer_config is not what transformers writes,
// or changes the rotation of a layer in a way that is not supported.
absl::Status CheckPerLayerConfig(const JsonObject& config, const ConfigModel& model,
                                 bool width_is_given);

// The head width that per_layer_config gives to `layer_type` layers; nullopt if the rest of the
// configuration gives it. `spec_path` is the path of the spec in messages. INVALID_ARGUMENT: it
// gives widths, but it is not clear which layers have them.
absl::StatusOr<std::optional<int64_t>> PerLayerHeadDim(const JsonObject& config,
                                                       std::string_view layer_type,
                                                       std::string_view spec_path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_LAYERS_H_
