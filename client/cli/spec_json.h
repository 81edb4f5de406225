// SPDX-License-Identifier: Apache-2.0
// Specs as JSON: keys are the fields' names, enumerators their names without prefix.
// Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_SPEC_JSON_H_
#define PHASOR_CLIENT_CLI_SPEC_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/spec.h"

namespace phasor::cli {

// The fields that are set.
nlohmann::ordered_json ToJson(const Spec& spec);

// The way back. An object with a member "spec" (what `phasor resolve --json` prints) stands for
// that member. INVALID_ARGUMENT: no JSON, a key that is no field, a value of the wrong type.
absl::StatusOr<Spec> SpecFromJson(const std::string& text);

// One field, as it stands in a spec's JSON. INVALID_ARGUMENT as above.
absl::StatusOr<RopeScaling> RopeScalingFromJson(const std::string& text);
absl::StatusOr<ParityArithmetic> ParityFromJson(const std::string& text);
absl::StatusOr<XposScaling> XposFromJson(const std::string& text);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_SPEC_JSON_H_
