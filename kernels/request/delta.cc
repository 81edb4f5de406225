// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/delta.h"

#include "kernels/base/invalid.h"

namespace phasor {

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
  return CheckAmplitude(from_plan, from_path);
}

}  // namespace phasor
