// SPDX-License-Identifier: Apache-2.0
// Reads which axis of a position turns which pair from a Hugging Face config.json.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_AXES_H_
#define PHASOR_KERNELS_SPEC_CONFIG_AXES_H_

#include <string_view>

#include "absl/status/status.h"
#include "kernels/spec/config_rope.h"
#include "kernels/spec/config_section.h"
#include "kernels/spec/spec.h"

namespace phasor {

// Sets the axes of `out`, whose base and heads are set. INVALID_ARGUMENT: sections that do not fit
// the model, or a head that is too narrow.
absl::Status ReadConfigAxes(const ConfigSection& section, const ConfigRope& rope, const Spec& user,
                            std::string_view spec_path, Spec* out);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_AXES_H_
