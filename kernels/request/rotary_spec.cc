// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/rotary_spec.h"

#include "kernels/base/invalid.h"
#include "kernels/spec/presets.h"

namespace phasor {

absl::StatusOr<ResolvedSpec> ResolveRotarySpec(Spec spec, int64_t head_dim, std::string_view path) {
  const Preset* preset = FindPreset(spec.preset);
  const bool preset_states = preset != nullptr && preset->spec.head_dim.has_value();
  const auto kind = spec.kind.has_value() || preset == nullptr ? spec.kind : preset->spec.kind;
  const bool other_base = !spec.config_json.empty() || !spec.encoder.empty();
  if (kind == SpecKind::kRotary && !spec.head_dim.has_value() && !preset_states && !other_base) {
    spec.head_dim = head_dim;
  }
  if (kind == SpecKind::kEncoding) {
    return Invalid(path, ".kind: ENCODING; must be ROTARY for this call");
  }
  return ResolveSpec(spec, path);
}

absl::Status CheckAmplitude(const Plan& plan, std::string_view path) {
  if (plan.amplitude != 0) return absl::OkStatus();
  return Invalid(path, ".attention_factor: 0 cannot be undone; must not be 0");
}

absl::Status CheckDelta(const Plan& from_plan, const Plan& to_plan, std::string_view from_path) {
  const ResolvedSpec& from = from_plan.spec;
  const ResolvedSpec& to = to_plan.spec;
  if (from.rotary_dim != to.rotary_dim || from.rotary_begin != to.rotary_begin) {
    return Invalid(from_path, ": rotates lanes [", from.rotary_begin, ", ",
                   from.rotary_begin + from.rotary_dim, "); must be those of spec, [",
                   to.rotary_begin, ", ", to.rotary_begin + to.rotary_dim, ")");
  }
  if (from_plan.heads != to_plan.heads) {
    return Invalid(from_path, ".frequency_heads: ", from_plan.heads, "; must be spec's (",
                   to_plan.heads, ")");
  }
  constexpr Pairing kBlocks = Pairing::kBlockHalfSplit;
  if (from.pairing_out == kBlocks && to.pairing_out == kBlocks && from.axes_dim != to.axes_dim) {
    return Invalid(from_path, ".axes_dim: differs from spec's; must be the same where both have ",
                   "pairs in blocks");
  }
  return CheckAmplitude(from_plan, from_path);
}

}  // namespace phasor
