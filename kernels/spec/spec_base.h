// SPDX-License-Identifier: Apache-2.0
// The base of a spec - a preset, a model's configuration, a configured encoder - with the spec's
// own fields over it. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_SPEC_BASE_H_
#define PHASOR_KERNELS_SPEC_SPEC_BASE_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/spec/spec.h"

namespace phasor {

// `user` merged over its base; `user` itself when it has none.
// INVALID_ARGUMENT: more than one base; a configuration that is refused (config_json.h); sub_config
// or layer_type without one. NOT_FOUND: unknown preset or encoder.
absl::StatusOr<Spec> WithBase(const Spec& user, std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_SPEC_BASE_H_
