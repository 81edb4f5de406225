// SPDX-License-Identifier: Apache-2.0
// A Hugging Face config.json as the base of a spec: the rotary embedding that transformers computes
// for it. docs/presets.md has the rules. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_JSON_H_
#define PHASOR_KERNELS_SPEC_CONFIG_JSON_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/spec/spec.h"

namespace phasor {

// The spec of `user.config_json`, for `user` to be merged over. `user.sub_config` and
// `user.layer_type` choose among several rotary embeddings; `user.pairing` (and where the file says
// nothing, rope_theta and axis_rule) answer for a model_type that is not known. `path` is that of
// the spec in messages.
// INVALID_ARGUMENT: not JSON, too large, a key that would change the numbers and is not understood,
// values that contradict each other, something required that is absent, an unknown model_type.
absl::StatusOr<Spec> SpecFromConfigJson(const Spec& user, std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_JSON_H_
