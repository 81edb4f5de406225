// SPDX-License-Identifier: Apache-2.0
// Named specs. A preset gives a convention its fields; the caller adds what is left open. The data
// is kernels/spec/presets.json, docs/presets.md its list for people.
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

struct Preset {
  std::string name;
  std::string summary;                       // one line
  std::string source;                        // paper or upstream file of the formula and numbers
  std::vector<std::string> required_fields;  // fields of Spec left to the caller
  Spec spec;
  std::optional<int64_t> context_length = {};  // positions that the model was made for
  bool verified = false;  // compared with an installed upstream package or the published numbers
  std::string note = {};  // what else a user must know; may be empty
};

// All presets, by name in alphabetical order. Lives for ever.
absl::Span<const Preset> Presets();

// The preset of that name, or nullptr.
const Preset* FindPreset(std::string_view name);

// Presets from JSON text, in its order: what Presets() is made of.
// INVALID_ARGUMENT: not JSON, a field that is unknown, absent or of another type.
absl::StatusOr<std::vector<Preset>> PresetsFromJson(std::string_view text);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_PRESETS_H_
