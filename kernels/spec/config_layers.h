// SPDX-License-Identifier: Apache-2.0
// What a Hugging Face config.json says about single layers (`per_layer_config`, as transformers
// 5.23.0 writes it), and the names beside head_dim that a head's width has in some files.
// Threads: pure functions.
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

// Of JetMoe, Zamba, MiMo and T5. Only JetMoe's is read.
inline constexpr const char* kHeadDimAliases[] = {"kv_channels", "attention_head_dim",
                                                  "swa_head_dim", "d_kv"};

// `width_is_given`: the caller says how wide heads are, whatever the configuration says.
// INVALID_ARGUMENT: per_layer_config is not what transformers writes, or changes a layer's rotation
// in a way that is not understood.
absl::Status CheckPerLayerConfig(const JsonObject& config, const ConfigModel& model,
                                 bool width_is_given);

// The width that per_layer_config gives the heads of `layer_type` layers; nullopt: the one that the
// rest of the configuration says. `spec_path` is that of the spec in messages.
// INVALID_ARGUMENT: it gives widths, and which layers have them is not clear.
absl::StatusOr<std::optional<int64_t>> PerLayerHeadDim(const JsonObject& config,
                                                       std::string_view layer_type,
                                                       std::string_view spec_path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_LAYERS_H_
