// SPDX-License-Identifier: Apache-2.0
// Resolves the fields of the frequency family and the lists with one value per pair or per axis.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/ladders.h"
#include "kernels/spec/names.h"
#include "kernels/spec/resolution.h"

namespace phasor {
namespace {

constexpr int kMaxHeads = 65536;

bool AllEqual(const std::vector<double>& list) {
  return std::all_of(list.begin(), list.end(), [&](double x) { return x == list[0]; });
}

std::vector<double> WithoutNegativeZeros(std::vector<double> list) {
  for (double& x : list) x = WithoutNegativeZero(x);
  return list;
}

absl::Status ResolveHeads(Resolution& r) {
  r.out.frequency_heads = r.merged.frequency_heads.value_or(1);
  if (r.out.frequency_heads >= 1 && r.out.frequency_heads <= kMaxHeads) return absl::OkStatus();
  return r.Invalid("frequency_heads", r.out.frequency_heads, " is out of range; must be in [1, ",
                   kMaxHeads, "]");
}

// Whether each axis has its own ladder of frequencies from a formula.
bool HasAxisLadders(const ResolvedSpec& spec) { return LaddersOf(spec).size() > 1; }

absl::Status ResolveAxesTheta(Resolution& r) {
  const std::vector<double>& theta = r.merged.axes_theta;
  if (theta.empty()) return absl::OkStatus();
  if (!r.user.axes_theta.empty() && r.user.rope_theta.has_value()) {
    return r.Invalid("axes_theta", "set beside rope_theta; set one of the two");
  }
  PHASOR_RETURN_IF_ERROR(r.CheckList("axes_theta", theta, r.out.axes, /*positive=*/true));
  if (AllEqual(theta)) {
    r.out.rope_theta = theta[0];
    return absl::OkStatus();
  }
  if (!HasAxisLadders(r.out)) {
    return r.Invalid("axes_theta", "the axes share one ladder of axis_rule ", Name(r.out.axis_rule),
                     "; must be equal");
  }
  r.out.axes_theta = theta;
  r.out.rope_theta = ResolvedSpec().rope_theta;
  return absl::OkStatus();
}

absl::Status ResolveAxesScale(Resolution& r) {
  const std::vector<double>& scale = r.merged.axes_position_scale;
  if (scale.empty()) return absl::OkStatus();
  PHASOR_RETURN_IF_ERROR(r.CheckList("axes_position_scale", scale, r.out.axes, false));
  if (AllEqual(scale) && scale[0] == 1) return absl::OkStatus();
  // The product is exact.
  if (AllEqual(scale) && (r.out.position_scale == 1 || scale[0] == -1)) {
    r.out.position_scale = WithoutNegativeZero(r.out.position_scale * scale[0]);
    return absl::OkStatus();
  }
  r.out.axes_position_scale = WithoutNegativeZeros(scale);
  return absl::OkStatus();
}

// base^(-j / (n - shift)) needs n != shift, except for a single pair, whose exponent is always 0.
absl::Status CheckDenominators(const Resolution& r) {
  for (const Ladder& ladder : LaddersOf(r.out)) {
    if (ladder.terms > 1 && ladder.n == r.out.downscale_freq_shift) {
      return r.Invalid("downscale_freq_shift", r.out.downscale_freq_shift,
                       " is the number of pairs; must differ from it");
    }
  }
  return absl::OkStatus();
}

absl::Status ResolveLivePairs(Resolution& r) {
  if (!r.merged.live_pairs.has_value()) return absl::OkStatus();
  const int64_t pairs = PairsOf(r.out);
  const int64_t live = *r.merged.live_pairs;
  if (live < 0 || live > pairs) {
    return r.Invalid("live_pairs", live, " is out of range; must be in [0, ", pairs, "]");
  }
  if (live < pairs) r.out.live_pairs = live;
  return absl::OkStatus();
}

absl::Status ResolveExplicit(Resolution& r) {
  const int64_t layers = r.out.axis_rule == AxisRule::kDense ? r.out.axes : 1;
  const int64_t count = r.out.frequency_heads * layers * PairsOf(r.out);
  if (r.merged.inv_freq.empty()) return r.Missing("inv_freq");
  PHASOR_RETURN_IF_ERROR(r.CheckList("inv_freq", r.merged.inv_freq, count, false));
  r.out.inv_freq = WithoutNegativeZeros(r.merged.inv_freq);
  return absl::OkStatus();
}

absl::Status ResolvePhase(Resolution& r) {
  if (r.merged.phase.empty()) return absl::OkStatus();
  const int64_t count = r.out.frequency_heads * PairsOf(r.out);
  PHASOR_RETURN_IF_ERROR(r.CheckList("phase", r.merged.phase, count, false));
  if (AllEqual(r.merged.phase) && r.merged.phase[0] == 0) return absl::OkStatus();
  r.out.phase = WithoutNegativeZeros(r.merged.phase);
  return absl::OkStatus();
}

}  // namespace

absl::Status ResolveFamily(Resolution& r) {
  const Spec& in = r.merged;
  ResolvedSpec& out = r.out;
  out.frequency_unit = in.frequency_unit.value_or(FrequencyUnit::kRadians);
  PHASOR_RETURN_IF_ERROR(r.Finite("position_scale", in.position_scale, &out.position_scale));
  PHASOR_RETURN_IF_ERROR(
      r.Finite("downscale_freq_shift", in.downscale_freq_shift, &out.downscale_freq_shift));
  switch (out.family) {
    case FrequencyFamily::kGeometric:
    case FrequencyFamily::kPerElement:
      if (!in.axes_theta.empty() && !in.rope_theta.has_value()) return absl::OkStatus();
      return r.RequiredPositive("rope_theta", in.rope_theta, &out.rope_theta);
    case FrequencyFamily::kPeriods:
    case FrequencyFamily::kPeriodsExclusive:
      PHASOR_RETURN_IF_ERROR(r.RequiredPositive("min_period", in.min_period, &out.min_period));
      return r.RequiredPositive("max_period", in.max_period, &out.max_period);
    case FrequencyFamily::kLinear:
      PHASOR_RETURN_IF_ERROR(r.RequiredFinite("min_freq", in.min_freq, &out.min_freq));
      return r.RequiredFinite("max_freq", in.max_freq, &out.max_freq);
    case FrequencyFamily::kLogRange:
      PHASOR_RETURN_IF_ERROR(r.RequiredPositive("min_freq", in.min_freq, &out.min_freq));
      return r.RequiredPositive("max_freq", in.max_freq, &out.max_freq);
    case FrequencyFamily::kExplicit:
      return ResolveHeads(r);
  }
  return absl::OkStatus();
}

absl::Status ResolvePerPair(Resolution& r) {
  PHASOR_RETURN_IF_ERROR(ResolveAxesTheta(r));
  PHASOR_RETURN_IF_ERROR(ResolveAxesScale(r));
  PHASOR_RETURN_IF_ERROR(ResolveLivePairs(r));
  if (field_use::IsExplicit(r.out)) PHASOR_RETURN_IF_ERROR(ResolveExplicit(r));
  PHASOR_RETURN_IF_ERROR(ResolvePhase(r));
  // RADIANS stands for "no unit": there is no phase, and periods are in turns anyway.
  if (field_use::IsPeriods(r.out) && r.out.phase.empty()) {
    r.out.frequency_unit = FrequencyUnit::kRadians;
  }
  return CheckDenominators(r);
}

}  // namespace phasor
