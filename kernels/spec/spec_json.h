// SPDX-License-Identifier: Apache-2.0
// Specs as JSON: keys are the names of phasor.v1.Spec's fields, enumerators their names with or
// without prefix. One form for the preset data, the command line and tests.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_SPEC_JSON_H_
#define PHASOR_KERNELS_SPEC_SPEC_JSON_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/base/json.h"
#include "kernels/spec/spec.h"

namespace phasor {

// The fields that are set; enumerators without prefix.
Json ToJson(const Spec& spec);

// The way back. INVALID_ARGUMENT: a key that is no field, a value of the wrong type, each with the
// path of the field below `path`.
absl::StatusOr<Spec> SpecFromJson(const Json& json, std::string_view path);

// The same from text, parsed as ParseJson does. An object with a member "spec" (what
// `phasor resolve --json` prints) stands for that member.
absl::StatusOr<Spec> SpecFromJson(std::string_view text);

// One field, as it stands in a spec's JSON. INVALID_ARGUMENT as above.
absl::StatusOr<RopeScaling> RopeScalingFromJson(std::string_view text);
absl::StatusOr<ParityArithmetic> ParityFromJson(std::string_view text);
absl::StatusOr<XposScaling> XposFromJson(std::string_view text);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_SPEC_JSON_H_
