// SPDX-License-Identifier: Apache-2.0
// Finds the base that a spec names and checks that it names only one.
#include "kernels/spec/spec_base.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/config_json.h"
#include "kernels/spec/presets.h"

namespace phasor {
namespace {

std::string NoPreset(std::string_view name, std::string_view path) {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  return StrCat(path, ".preset: no preset named \"", Shown(name), "\"", DidYouMean(name, names),
                " must be one of ListPresets (command line: phasor presets)");
}

}  // namespace

absl::Status CheckBase(const Spec& user, std::string_view path) {
  const int bases = !user.preset.empty() + !user.config_json.empty() + !user.encoder.empty();
  if (bases > 1) {
    return Invalid(
        path, ".preset: more than one base; set at most one of preset, config_json and encoder");
  }
  const char* const choice = user.layer_type.has_value()   ? ".layer_type"
                             : user.sub_config.has_value() ? ".sub_config"
                                                           : nullptr;
  if (choice == nullptr || !user.config_json.empty()) return absl::OkStatus();
  return Invalid(path, choice, ": set without config_json; must not be");
}

absl::StatusOr<Spec> WithBase(const Spec& user, std::string_view path) {
  PHASOR_RETURN_IF_ERROR(CheckBase(user, path));
  if (!user.encoder.empty()) {
    return absl::NotFoundError(StrCat(path, ".encoder: no encoder named \"", Shown(user.encoder),
                                      "\": none is configured here; must be a name of a server's "
                                      "configuration"));
  }
  if (!user.config_json.empty()) {
    PHASOR_ASSIGN_OR_RETURN(Spec base, SpecFromConfigJson(user, path));
    return MergeSpec(std::move(base), user);
  }
  if (user.preset.empty()) return user;
  const Preset* const preset = FindPreset(user.preset);
  if (preset == nullptr) {
    return absl::NotFoundError(NoPreset(user.preset, path));
  }
  return MergeSpec(preset->spec, user);
}

Spec MergeOverBase(Spec base, const Spec& with) {
  Spec merged = MergeSpec(std::move(base), with);
  if (merged.precision != Precision::kParity) merged.parity = with.parity;
  return merged;
}

}  // namespace phasor
