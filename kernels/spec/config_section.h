// SPDX-License-Identifier: Apache-2.0
// Finds the parts of a Hugging Face config.json, and the model that each describes.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_SECTION_H_
#define PHASOR_KERNELS_SPEC_CONFIG_SECTION_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/json.h"
#include "kernels/spec/config_models.h"
#include "kernels/spec/spec.h"

namespace phasor {

// A part of a configuration and its model. Borrows the configuration.
struct ConfigSection {
  JsonObject in;
  const ConfigModel* known = nullptr;  // nullptr: the model_type is not known
  ConfigModel generic = {};            // what is assumed then

  const ConfigModel& model() const { return known != nullptr ? *known : generic; }
};

// The part that `user.sub_config` names; without it text_config if there is one, as in
// transformers, or else the whole. `path` is the path of the spec in messages. INVALID_ARGUMENT: no
// such part; an unknown model_type while the user gives no pairing.
absl::StatusOr<ConfigSection> ChooseSection(const Json& root, const Spec& user,
                                            std::string_view path);

// The sub_config of every other part that says or has by default what model it is, in the order of
// the file. Not more than kMaxConfigParts are listed.
inline constexpr size_t kMaxConfigParts = 31;
std::vector<std::string> PartsOfConfig(const Json& root);

// Whether the whole is only a frame around its parts, so that no spec without sub_config means it.
bool IsOnlyFrame(const Json& root);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_SECTION_H_
