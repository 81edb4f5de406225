// SPDX-License-Identifier: Apache-2.0
// Named specs. A preset gives a convention its fields; the caller adds what is left open.
#ifndef PHASOR_KERNELS_PRESETS_H_
#define PHASOR_KERNELS_PRESETS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "kernels/spec.h"

namespace phasor {

struct Preset {
  std::string name;
  std::string summary;                       // one line
  std::string source;                        // paper or upstream file of the formula
  std::vector<std::string> required_fields;  // fields of Spec left to the caller
  Spec spec;
};

// All presets, by name in alphabetical order. Lives for ever.
absl::Span<const Preset> Presets();

// The preset of that name, or nullptr.
const Preset* FindPreset(std::string_view name);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PRESETS_H_
