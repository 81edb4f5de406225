// SPDX-License-Identifier: Apache-2.0
// Reads the width of a head and the lanes of it that rotate from a Hugging Face config.json.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_HEADS_H_
#define PHASOR_KERNELS_SPEC_CONFIG_HEADS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/base/json.h"
#include "kernels/spec/config_models.h"
#include "kernels/spec/config_rope.h"
#include "kernels/spec/spec.h"

namespace phasor {

// Where the heads of one kind of layers are described. Borrows everything.
struct ConfigHeads {
  const JsonObject& in;
  const ConfigModel& model;
  const ConfigKind& kind;
  const ConfigRope& rope;
  const Spec& user;
  std::optional<int64_t> layer_width;  // of these layers alone (per_layer_config)
  bool dictionary = false;             // the configuration has a dictionary
  bool own_dictionary = false;         // rope is of these layers alone
};

// Sets head_dim, rotary_begin, rotary_dim or partial_rotary_factor, and live_pairs of `out`.
// INVALID_ARGUMENT: widths that contradict each other, or none.
absl::Status ReadConfigHeads(const ConfigHeads& heads, Spec* out);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_HEADS_H_
