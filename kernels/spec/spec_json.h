// SPDX-License-Identifier: Apache-2.0
// Specs as JSON. Keys are the field names of phasor.v1.Spec; enumerators are written by name, with
// or without prefix. The preset data, the command line and tests all use this form.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_SPEC_JSON_H_
#define PHASOR_KERNELS_SPEC_SPEC_JSON_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/base/json.h"
#include "kernels/spec/spec.h"

namespace phasor {

// The fields that are set. Enumerators have no prefix.
Json ToJson(const Spec& spec);

// The inverse of ToJson. INVALID_ARGUMENT: a key that is no field, or a value of the wrong type.
// The message has the path of the field, which begins with `path`.
absl::StatusOr<Spec> SpecFromJson(const Json& json, std::string_view path);

// The same from text, parsed by ParseJson. If the object has a member "spec" (as `phasor resolve
// --json` prints), that member is read.
absl::StatusOr<Spec> SpecFromJson(std::string_view text);

// One field, written as in the JSON of a spec. INVALID_ARGUMENT as above.
absl::StatusOr<RopeScaling> RopeScalingFromJson(std::string_view text);
absl::StatusOr<ParityArithmetic> ParityFromJson(std::string_view text);
absl::StatusOr<XposScaling> XposFromJson(std::string_view text);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_SPEC_JSON_H_
