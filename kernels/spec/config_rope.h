// SPDX-License-Identifier: Apache-2.0
// Reads a model's `rope_parameters` (or `rope_scaling`, its older name). Ignores nothing: a key
// that its rope_type does not use is an error. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_ROPE_H_
#define PHASOR_KERNELS_SPEC_CONFIG_ROPE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/json.h"
#include "kernels/spec/config_models.h"
#include "kernels/spec/spec.h"

namespace phasor {

// The values of the dictionary, completed from the rest of the configuration.
struct ConfigRope {
  std::optional<double> rope_theta;
  std::optional<double> partial_rotary_factor;
  bool proportional = false;  // frequencies are those of the whole head; the last ones are 0
  RopeScaling scaling;
  std::vector<int64_t> mrope_section;
  std::optional<bool> mrope_interleaved;
};

// Lengths that the configuration gives outside the dictionary.
struct ConfigLengths {
  std::optional<int64_t> max_position_embeddings;
  std::optional<int64_t> original_max_position_embeddings;
};

// Reads the dictionary. INVALID_ARGUMENT: an unknown rope_type, a key that it does not use, a value
// of the wrong type, a missing required value, or two values that contradict each other.
absl::StatusOr<ConfigRope> ReadConfigRope(const JsonObject& dictionary, const ConfigModel& model,
                                          const ConfigLengths& lengths);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_ROPE_H_
