// SPDX-License-Identifier: Apache-2.0
// Merges one spec over another, and turns a resolved spec back into a spec.
#include "kernels/spec/spec.h"

#include <type_traits>

#include "kernels/spec/fields.h"

namespace phasor {

Spec MergeSpec(Spec base, const Spec& with) {
  if (!with.preset.empty() || !with.config_json.empty() || !with.encoder.empty()) {
    base.preset = with.preset;
    base.config_json = with.config_json;
    base.encoder = with.encoder;
  }
  // Of two fields that say the same thing, the new one removes the old one.
  if (with.rotary_dim.has_value()) base.partial_rotary_factor.reset();
  if (with.partial_rotary_factor.has_value()) base.rotary_dim.reset();
  if (with.rope_theta.has_value()) base.axes_theta.clear();
  if (!with.axes_theta.empty()) base.rope_theta.reset();
  // Explicit frequencies are scaled already, so the base's scaling must not apply to them.
  if (!with.inv_freq.empty()) base.rope_scaling = {};
  VisitSpecFields([&](const SpecField&, auto member, auto) {
    if (IsSet(with.*member)) base.*member = with.*member;
  });
  return base;
}

Spec ToSpec(const ResolvedSpec& resolved) {
  Spec spec;
  VisitSpecFields([&](const SpecField& field, auto member, auto resolved_member) {
    if constexpr (!std::is_same_v<decltype(resolved_member), NotResolved>) {
      if (field.used(resolved)) spec.*member = resolved.*resolved_member;
    }
  });
  return spec;
}

}  // namespace phasor
