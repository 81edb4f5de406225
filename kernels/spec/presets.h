// SPDX-License-Identifier: Apache-2.0
// Named specs. A preset sets the fields of one convention; the caller adds the fields that it
// leaves open. The data is kernels/spec/presets.json; docs/presets.md lists it for people.
#ifndef PHASOR_KERNELS_SPEC_PRESETS_H_
#define PHASOR_KERNELS_SPEC_PRESETS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/spec/spec.h"

namespace phasor {

// A preset. Threads: a plain value.
struct Preset {
  std::string name;
  std::string summary;  // one line
  std::string source;   // paper or upstream file with the formula and the numbers
  std::vector<std::string> required_fields;  // fields of Spec that the caller must set
  Spec spec;
  std::optional<int64_t> context_length = {};  // positions that the model was made for
  bool verified = false;  // compared with an installed upstream package or published numbers
  std::string note = {};  // anything else that a user must know; may be empty
};

// All presets in alphabetical order of their names. They live as long as the process.
absl::Span<const Preset> Presets();

// The preset with that name, or nullptr.
const Preset* FindPreset(std::string_view name);

// Reads presets from JSON text, in the order of the text. Presets() comes from this.
// INVALID_ARGUMENT: not JSON, or a field that is unknown, absent or of the wrong type.
absl::StatusOr<std::vector<Preset>> PresetsFromJson(std::string_view text);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_PRESETS_H_
