// SPDX-License-Identifier: Apache-2.0
// A preset with the fields that a caller would add.
#ifndef PHASOR_TESTS_SUPPORT_COMPLETE_PRESET_H_
#define PHASOR_TESTS_SUPPORT_COMPLETE_PRESET_H_

#include <string>

#include "kernels/spec/presets.h"
#include "kernels/spec/spec.h"

namespace phasor::testing {

// The preset with its required fields filled in.
inline Spec Complete(const Preset& preset) {
  Spec spec;
  spec.preset = preset.name;
  for (const std::string& field : preset.required_fields) {
    if (field == "dim") spec.dim = 48;
    if (field == "head_dim") spec.head_dim = 96;
    if (field == "axes_dim") spec.axes_dim = {32, 48, 16};
    if (field == "sequence_length") spec.sequence_length = 5000;
    if (field == "phase") spec.phase = {0.0, 1.0, 2.0};
  }
  if (preset.spec.family == FrequencyFamily::kExplicit) {
    spec.inv_freq = {1.0, 0.5, 0.25};
    spec.dim = preset.spec.order == TrigOrder::kCosOnly ? 3 : 6;
  }
  return spec;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_COMPLETE_PRESET_H_
