// SPDX-License-Identifier: Apache-2.0
// Decides which keys of a Hugging Face config.json are about rotation and which of them a model
// reads. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_KEYS_H_
#define PHASOR_KERNELS_SPEC_CONFIG_KEYS_H_

#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/json.h"
#include "kernels/spec/config_models.h"

namespace phasor {

// Whether the name of a key says that it is about rotation.
bool IsAboutRotation(std::string_view key);

// Whether the key is there with null. Elsewhere null counts as absent; not so where transformers
// takes it for a value.
bool IsNull(const JsonObject& config, std::string_view key);

// Checks all keys. `generic` means that the model_type is unknown. INVALID_ARGUMENT: a key about
// rotation that is not supported or that the model does not read, or a key that says that nothing
// rotates.
absl::Status CheckConfigKeys(const JsonObject& config, const ConfigModel& model, bool generic);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_KEYS_H_
