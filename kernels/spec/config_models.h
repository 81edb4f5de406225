// SPDX-License-Identifier: Apache-2.0
// What a Hugging Face config.json leaves to the code of its model_type: which lanes form a pair,
// and the values of keys that are not there. docs/presets.md prints the table. Threads: pure values
// and functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_
#define PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "kernels/spec/spec.h"

namespace phasor {

// One model_type, as transformers 5.23.0 computes it. tests/conformance/config_json.py compares.
struct ConfigModel {
  std::string_view model_type;
  Pairing pairing = Pairing::kHalfSplit;
  Pairing pairing_out = Pairing::kHalfSplit;
  double rope_theta = 10000;       // when the config has none
  double local_theta = 0;          // > 0: sliding_attention layers have a rotary embedding apart,
                                   // with this base when the config has none
  bool one_base = false;           // rope_theta is meant for those, too
  bool local_is_scaled = false;    // whether an old rope_scaling is for those, too
  bool full_stands_still = false;  // full_attention layers do not rotate
  int64_t head_dim = 0;            // when the config has none; 0: hidden_size / num_attention_heads
  int64_t full_head_dim = 0;       // > 0: of full_attention layers, unless global_head_dim says
  double partial_rotary_factor = 0;    // when the config has none; 0: the model rotates whole heads
  int64_t rotary_dim = 0;              // when the config has none; 0: what the factor says
  std::optional<AxisRule> mrope = {};  // how mrope_section, then required, is read
  bool latent = false;                 // heads are [qk_nope_head_dim | qk_rope_head_dim]
  bool ntk_alpha = false;              // "dynamic" with alpha is NTK by alpha
  bool needs_rope_parameters = false;  // the model's default is a scaling: the config must say
  bool vision = false;                 // axes (row, column), each half of the head, no scaling
};

// Every known model_type, in alphabetical order.
absl::Span<const ConfigModel> ConfigModels();

// The one of that name, or nullptr.
const ConfigModel* FindConfigModel(std::string_view model_type);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_
