// SPDX-License-Identifier: Apache-2.0
// Asks for each layer of a model by its number.
#include "kernels/spec/model_layers.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/spec/config_json.h"

namespace phasor {

absl::StatusOr<std::vector<std::optional<ResolvedSpec>>> ResolveModel(const Spec& spec,
                                                                      std::string_view path) {
  if (spec.config_json.empty()) {
    return Invalid(path, ".config_json: not set; must be the model's config.json");
  }
  if (spec.layer_type.has_value()) {
    return Invalid(path, ".layer_type: set; must not be where all layers are asked for");
  }
  PHASOR_ASSIGN_OR_RETURN(const int64_t count, LayersOfConfigJson(spec, path));
  std::vector<std::optional<ResolvedSpec>> layers;
  std::vector<std::pair<Spec, ResolvedSpec>> known;
  for (int64_t i = 0; i < count; ++i) {
    Spec user = spec;
    user.layer_type = std::to_string(i);
    auto base = LayerFromConfigJson(user, path);
    if (!base.ok()) return base.status();
    if (!base->has_value()) {
      layers.emplace_back();
      continue;
    }
    user.config_json.clear();
    user.layer_type.reset();
    user.sub_config.reset();
    const Spec whole = MergeSpec(**std::move(base), user);
    const ResolvedSpec* found = nullptr;
    for (const auto& [asked, resolved] : known) {
      if (asked == whole) found = &resolved;
    }
    if (found == nullptr) {
      PHASOR_ASSIGN_OR_RETURN(ResolvedSpec resolved, ResolveSpec(whole, path));
      known.emplace_back(whole, std::move(resolved));
      found = &known.back().second;
    }
    layers.emplace_back(*found);
  }
  return layers;
}

}  // namespace phasor
