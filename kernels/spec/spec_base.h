// SPDX-License-Identifier: Apache-2.0
// Merges a spec over its base: a preset, a model's configuration or a configured encoder.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_SPEC_BASE_H_
#define PHASOR_KERNELS_SPEC_SPEC_BASE_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/spec/spec.h"

namespace phasor {

// INVALID_ARGUMENT: more than one base, or sub_config or layer_type without a configuration.
absl::Status CheckBase(const Spec& user, std::string_view path);

// Returns `user` merged over its base, or `user` itself if it has none. INVALID_ARGUMENT: as
// CheckBase, or a configuration that config_json.h refuses. NOT_FOUND: unknown preset or encoder.
absl::StatusOr<Spec> WithBase(const Spec& user, std::string_view path);

// MergeSpec for a base that may have been read from a config.json. How its class rounds is kept for
// PARITY only.
Spec MergeOverBase(Spec base, const Spec& with);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_SPEC_BASE_H_
