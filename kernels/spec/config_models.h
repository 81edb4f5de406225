// SPDX-License-Identifier: Apache-2.0
// The table of model_types: what a Hugging Face config.json leaves to the model's code, namely
// which lanes form a pair and the values of absent keys. docs/presets.md prints the table.
// Threads: pure values and functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_
#define PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "kernels/spec/spec.h"

namespace phasor {

// One model_type as transformers 5.23.0 computes it; tests/conformance/config_json.py compares.
struct ConfigModel {
  std::string_view model_type;
  Pairing pairing = Pairing::kHalfSplit;
  Pairing pairing_out = Pairing::kHalfSplit;
  double rope_theta = 10000;  // when the config has none
  double local_theta = 0;     // > 0: sliding_attention layers have their own rotary embedding, with
                              // this base when the config has none
  bool one_base = false;      // rope_theta is the base of sliding_attention layers too
  bool local_is_scaled = false;    // an old rope_scaling applies to those layers too
  bool full_stands_still = false;  // full_attention layers do not rotate
  int64_t head_dim = 0;            // when the config has none; 0: hidden_size / num_attention_heads
  int64_t full_head_dim = 0;       // > 0: of full_attention layers, unless global_head_dim is set
  double partial_rotary_factor = 0;    // when the config has none; 0: whole heads rotate
  int64_t rotary_dim = 0;              // when the config has none; 0: by the factor
  std::optional<AxisRule> mrope = {};  // set: mrope_section is required and read by this rule
  bool latent = false;                 // heads are [qk_nope_head_dim | qk_rope_head_dim]
  bool ntk_alpha = false;              // "dynamic" with alpha means NTK by alpha
  bool needs_rope_parameters = false;  // the default is a scaling: rope_parameters is required
  bool vision = false;                 // axes (row, column), half of the head each; no scaling
};

// All known model_types in alphabetical order.
absl::Span<const ConfigModel> ConfigModels();

// The one with that name, or nullptr.
const ConfigModel* FindConfigModel(std::string_view model_type);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_
