// SPDX-License-Identifier: Apache-2.0
// Resolves rope_scaling, the sequence_length that it reads, and xpos: checks and defaults per rule.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "kernels/base/status_macros.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/ladders.h"
#include "kernels/spec/names.h"
#include "kernels/spec/resolution.h"

namespace phasor {
namespace {

// Rules that need a logarithm or a power per pair accept only widths that models have.
constexpr int64_t kMaxWidthOfSlowRules = 8192;

// Each Resolve(r, rule, value) checks one rule, fills in its defaults and stores it. A rule that
// changes nothing is not stored. Messages begin with the path made of the rule's name.

absl::Status Positive(const Resolution& r, const std::string& field, std::optional<double>& value) {
  double checked = 0;
  return r.RequiredPositive(field, value, &checked);
}

// Checks that `value` is finite; sets it to `otherwise` when it is not set.
absl::Status FiniteOr(const Resolution& r, const std::string& field, double otherwise,
                      std::optional<double>& value) {
  value = WithoutNegativeZero(value.value_or(otherwise));
  return r.CheckFinite(field, *value);
}

absl::Status FiniteIfSet(const Resolution& r, const std::string& field,
                         std::optional<double>& value) {
  if (value.has_value()) value = WithoutNegativeZero(*value);
  return value.has_value() ? r.CheckFinite(field, *value) : absl::OkStatus();
}

absl::Status OriginalLength(const Resolution& r, const std::string& rule, int64_t least,
                            const std::optional<int64_t>& value) {
  const std::string field = rule + ".original_max_position_embeddings";
  if (!value.has_value()) return r.Missing(field);
  if (*value >= least) return absl::OkStatus();
  return r.Invalid(field, *value, "; must be at least ", least);
}

absl::Status NeedsGeometric(const Resolution& r, const std::string& rule) {
  if (r.out.family != FrequencyFamily::kGeometric) {
    return r.Invalid(rule, "has no meaning for family ", Name(r.out.family), "; must be GEOMETRIC");
  }
  if (r.out.frequency_unit != FrequencyUnit::kRadians) {
    return r.Invalid(rule, "has no meaning for frequency_unit TURNS; must be RADIANS");
  }
  return absl::OkStatus();
}

absl::Status NeedsSequenceLength(const Resolution& r, const std::string& rule) {
  if (!r.merged.sequence_length.has_value()) {
    return r.Invalid("sequence_length", "not set; must be given for ", rule);
  }
  if (*r.merged.sequence_length > 0) return absl::OkStatus();
  return r.Invalid("sequence_length", *r.merged.sequence_length, "; must be > 0");
}

absl::Status Resolve(Resolution& r, const std::string& rule, LinearScaling linear) {
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".factor", linear.factor));
  if (linear.factor != 1) r.out.rope_scaling = linear;
  return absl::OkStatus();
}

absl::Status Resolve(Resolution& r, const std::string& rule, NtkScaling ntk) {
  PHASOR_RETURN_IF_ERROR(NeedsGeometric(r, rule));
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".factor", ntk.factor));
  if (r.out.rotary_dim == 2) {
    return r.Invalid(rule, "has the exponent d / (d - 2); rotary_dim must be at least 4");
  }
  ntk.dynamic = ntk.dynamic.value_or(false);
  if (!*ntk.dynamic) {
    if (ntk.original_max_position_embeddings.has_value()) {
      return r.Invalid(rule + ".original_max_position_embeddings",
                       "has no meaning unless dynamic; must not be set");
    }
    if (ntk.factor != 1) r.out.rope_scaling = ntk;
    return absl::OkStatus();
  }
  PHASOR_RETURN_IF_ERROR(OriginalLength(r, rule, 1, ntk.original_max_position_embeddings));
  PHASOR_RETURN_IF_ERROR(NeedsSequenceLength(r, rule));
  r.out.sequence_length =
      std::max(*r.merged.sequence_length, *ntk.original_max_position_embeddings);
  r.out.rope_scaling = ntk;
  return absl::OkStatus();
}

absl::Status Resolve(Resolution& r, const std::string& rule, MixedNtkScaling mixed) {
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".factor", mixed.factor));
  PHASOR_RETURN_IF_ERROR(FiniteIfSet(r, rule + ".b", mixed.b));
  if (!mixed.b.has_value()) PHASOR_RETURN_IF_ERROR(NeedsGeometric(r, rule));
  if (mixed.b.has_value() && r.out.rotary_dim > kMaxWidthOfSlowRules) {
    return r.Invalid(rule + ".b", "set for a rotary_dim of ", r.out.rotary_dim,
                     "; must be at most ", kMaxWidthOfSlowRules);
  }
  if (mixed.factor != 1) r.out.rope_scaling = mixed;
  return absl::OkStatus();
}

// Checks the fields of YaRN's amplitude, and drops those that another field replaces.
absl::Status ResolveAmplitude(const Resolution& r, const std::string& rule, YarnScaling& yarn) {
  PHASOR_RETURN_IF_ERROR(FiniteIfSet(r, rule + ".attention_factor", yarn.attention_factor));
  PHASOR_RETURN_IF_ERROR(FiniteIfSet(r, rule + ".mscale", yarn.mscale));
  PHASOR_RETURN_IF_ERROR(FiniteIfSet(r, rule + ".mscale_all_dim", yarn.mscale_all_dim));
  PHASOR_RETURN_IF_ERROR(FiniteOr(r, rule + ".attn_factor", 1, yarn.attn_factor));
  PHASOR_RETURN_IF_ERROR(FiniteOr(r, rule + ".mscale_coefficient", 0.1, yarn.mscale_coefficient));
  if (yarn.attention_factor.has_value()) {
    yarn.mscale.reset();
    yarn.mscale_all_dim.reset();
    yarn.attn_factor.reset();
    yarn.mscale_coefficient.reset();
  } else if (yarn.mscale.value_or(0) == 0 || yarn.mscale_all_dim.value_or(0) == 0) {
    yarn.mscale.reset();
    yarn.mscale_all_dim.reset();
  }
  return absl::OkStatus();
}

absl::Status Resolve(Resolution& r, const std::string& rule, YarnScaling yarn) {
  PHASOR_RETURN_IF_ERROR(NeedsGeometric(r, rule));
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".factor", yarn.factor));
  PHASOR_RETURN_IF_ERROR(OriginalLength(r, rule, 1, yarn.original_max_position_embeddings));
  if (r.out.rope_theta == 1) {
    return r.Invalid("rope_theta", "1, ", rule, " divides by its logarithm; must differ from 1");
  }
  yarn.beta_fast = yarn.beta_fast.value_or(32);
  yarn.beta_slow = yarn.beta_slow.value_or(1);
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".beta_fast", yarn.beta_fast));
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".beta_slow", yarn.beta_slow));
  yarn.truncate = yarn.truncate.value_or(true);
  yarn.log_interpolation = yarn.log_interpolation.value_or(false);
  PHASOR_RETURN_IF_ERROR(FiniteOr(r, rule + ".extrapolation_factor", 1, yarn.extrapolation_factor));
  PHASOR_RETURN_IF_ERROR(ResolveAmplitude(r, rule, yarn));
  if (*yarn.log_interpolation && r.out.rotary_dim > kMaxWidthOfSlowRules) {
    return r.Invalid(rule + ".log_interpolation", "set for a rotary_dim of ", r.out.rotary_dim,
                     "; must be at most ", kMaxWidthOfSlowRules);
  }
  r.out.rope_scaling = yarn;
  return absl::OkStatus();
}

// Llama 3's rule without a range to blend in (Llama 4 Scout): pairs that turn less often than
// low_freq_factor are divided by the factor, others are not. That is YaRN with one boundary, which
// does not divide by the empty range. YaRN clamps its boundaries to the pairs 0 to d - 1; beyond
// these all pairs are on one side.
absl::Status ResolveStep(Resolution& r, const std::string& rule, const Llama3Scaling& llama3) {
  PHASOR_RETURN_IF_ERROR(NeedsGeometric(r, rule));
  if (r.out.rope_theta <= 1) {
    return r.Invalid("rope_theta", r.out.rope_theta, "; must be above 1 where ", rule,
                     " has equal factors");
  }
  const double d = static_cast<double>(r.out.rotary_dim);
  const double turns = static_cast<double>(*llama3.original_max_position_embeddings) /
                       (2 * std::numbers::pi * *llama3.low_freq_factor);
  const double boundary = d * std::log(turns) / (2 * std::log(r.out.rope_theta));
  if (boundary < 0) return Resolve(r, rule, LinearScaling{llama3.factor});
  if (boundary > d - 1) return absl::OkStatus();
  YarnScaling step;
  step.factor = llama3.factor;
  step.original_max_position_embeddings = llama3.original_max_position_embeddings;
  step.beta_fast = step.beta_slow = llama3.low_freq_factor;
  step.attention_factor = 1;
  return Resolve(r, rule, step);
}

absl::Status Resolve(Resolution& r, const std::string& rule, Llama3Scaling llama3) {
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".factor", llama3.factor));
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".low_freq_factor", llama3.low_freq_factor));
  PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".high_freq_factor", llama3.high_freq_factor));
  PHASOR_RETURN_IF_ERROR(OriginalLength(r, rule, 1, llama3.original_max_position_embeddings));
  if (*llama3.high_freq_factor < *llama3.low_freq_factor) {
    return r.Invalid(rule + ".high_freq_factor", *llama3.high_freq_factor,
                     "; must be at least low_freq_factor (", *llama3.low_freq_factor, ")");
  }
  if (llama3.factor == 1) return absl::OkStatus();
  if (llama3.high_freq_factor == llama3.low_freq_factor) return ResolveStep(r, rule, llama3);
  r.out.rope_scaling = llama3;
  return absl::OkStatus();
}

absl::Status Resolve(Resolution& r, const std::string& rule, LongRopeScaling longrope) {
  const int64_t pairs = r.out.rotary_dim / 2;
  PHASOR_RETURN_IF_ERROR(OriginalLength(r, rule, 2, longrope.original_max_position_embeddings));
  if (longrope.short_factor.empty()) return r.Missing(rule + ".short_factor");
  if (longrope.long_factor.empty()) return r.Missing(rule + ".long_factor");
  PHASOR_RETURN_IF_ERROR(r.CheckList(rule + ".short_factor", longrope.short_factor, pairs, true));
  PHASOR_RETURN_IF_ERROR(r.CheckList(rule + ".long_factor", longrope.long_factor, pairs, true));
  PHASOR_RETURN_IF_ERROR(FiniteIfSet(r, rule + ".attention_factor", longrope.attention_factor));
  PHASOR_RETURN_IF_ERROR(FiniteIfSet(r, rule + ".short_mscale", longrope.short_mscale));
  PHASOR_RETURN_IF_ERROR(FiniteIfSet(r, rule + ".long_mscale", longrope.long_mscale));
  const bool given = longrope.attention_factor.has_value() ||
                     (longrope.short_mscale.has_value() && longrope.long_mscale.has_value());
  if (longrope.factor.has_value() || !given) {
    PHASOR_RETURN_IF_ERROR(Positive(r, rule + ".factor", longrope.factor));
  }
  if (given) longrope.factor.reset();
  PHASOR_RETURN_IF_ERROR(NeedsSequenceLength(r, rule));
  const int64_t original = *longrope.original_max_position_embeddings;
  r.out.sequence_length =
      *r.merged.sequence_length > original && original < std::numeric_limits<int64_t>::max()
          ? original + 1
          : original;
  r.out.rope_scaling = std::move(longrope);
  return absl::OkStatus();
}

// Whether a rule is the same as dividing positions, and so works with any frequencies.
bool IsPositionWise(const RopeScaling& scaling) {
  return std::holds_alternative<LinearScaling>(scaling);
}

}  // namespace

absl::Status ResolveScaling(Resolution& r) {
  const RopeScaling& scaling = r.merged.rope_scaling;
  absl::Status status;
  VisitScalingRules([&]<typename T>(const char* name, const T&) {
    if (const T* const rule = std::get_if<T>(&scaling)) {
      status = Resolve(r, StrCat("rope_scaling.", name), *rule);
    }
  });
  PHASOR_RETURN_IF_ERROR(status);
  if (IsSet(scaling) && !IsPositionWise(scaling) && LaddersOf(r.out).size() > 1) {
    return r.Invalid("rope_scaling", "axis_rule ", Name(r.out.axis_rule),
                     " has a ladder per axis; must be linear");
  }
  if (IsSet(r.out.rope_scaling) && !IsPositionWise(scaling) && r.out.frequency_heads > 1) {
    return r.Invalid("rope_scaling", "frequency_heads ", r.out.frequency_heads,
                     "; must be linear where heads have frequencies of their own");
  }
  if (r.user.sequence_length.has_value() && !r.out.sequence_length.has_value()) {
    return r.Invalid("sequence_length",
                     "has no meaning without dynamic NTK or LongRoPE; must not be set");
  }
  return absl::OkStatus();
}

absl::Status ResolveXpos(Resolution& r) {
  if (!r.merged.xpos.has_value()) return absl::OkStatus();
  XposScaling xpos = *r.merged.xpos;
  PHASOR_RETURN_IF_ERROR(FiniteOr(r, "xpos.scale_base", 512, xpos.scale_base));
  PHASOR_RETURN_IF_ERROR(FiniteOr(r, "xpos.center", 0, xpos.center));
  constexpr double kLeastScaleBase = 2;  // an exponent is less than one octave per position
  if (*xpos.scale_base < kLeastScaleBase) {
    return r.Invalid("xpos.scale_base", *xpos.scale_base, "; must be at least ", kLeastScaleBase);
  }
  if (std::abs(*xpos.center) >= 0x1p63) {
    return r.Invalid("xpos.center", *xpos.center, "; must be in (-2^63, 2^63)");
  }
  if (r.out.axes != 1)
    return r.Invalid("xpos", "set for ", r.out.axes, " axes; must have one axis");
  xpos.inverse = xpos.inverse.value_or(false);
  r.out.xpos = xpos;
  return absl::OkStatus();
}

}  // namespace phasor
