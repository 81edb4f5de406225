// SPDX-License-Identifier: Apache-2.0
// Applies rope_scaling in real arithmetic: upstream's rules without their roundings. Formulas and
// sources: docs/conventions.md.
#include <algorithm>
#include <variant>

#include "kernels/plan/frequencies_real.h"

namespace phasor::frequencies {
namespace {

// ResolveSpec has filled in the defaults: every field that a rule uses is set.

// The share of the unscaled frequency for each pair, 1 - ramp(j).
std::vector<Real> YarnKeep(const ResolvedSpec& spec, const YarnScaling& yarn, int64_t pairs) {
  const Real d = spec.rotary_dim;
  const Real original = *yarn.original_max_position_embeddings;
  const Real twice_log_base = 2 * log(Real(spec.rope_theta));
  // The pair that makes `turns` turns over the original length.
  const auto pair_of = [&](double turns) {
    return Real(d * log(original / (Real(turns) * TwoPi())) / twice_log_base);
  };
  Real low = pair_of(*yarn.beta_fast);
  Real high = pair_of(*yarn.beta_slow);
  if (*yarn.truncate) {
    low = floor(low);
    high = ceil(high);
  }
  low = std::max(low, Real(0));
  high = std::min(high, Real(d - 1));
  if (low == high) high += Real(1) / 1000;
  std::vector<Real> keep;
  for (int64_t j = 0; j < pairs; ++j) {
    const Real ramp = std::clamp(Real((j - low) / (high - low)), Real(0), Real(1));
    keep.push_back((1 - ramp) * Real(*yarn.extrapolation_factor));
  }
  return keep;
}

// f * keep + (f / factor) * (1 - keep).
Real Mix(const Real& f, const Real& keep, const Real& factor) {
  return f * keep + f / factor * (1 - keep);
}

struct Scaler {
  const ResolvedSpec& spec;
  std::vector<Real>& turns;

  void operator()(std::monostate) const {}
  void operator()(const LinearScaling& linear) const {
    for (Real& f : turns) f /= Real(*linear.factor);
  }
  void operator()(const NtkScaling&) const {}  // BaseOf applies it
  void operator()(const MixedNtkScaling& mixed) const {
    const Real log_factor = log(Real(*mixed.factor));
    if (!mixed.b.has_value()) {
      const Real divisor = exp(log_factor * 2 / spec.rotary_dim);
      for (Real& f : turns) f /= divisor;
      return;
    }
    const Real b = *mixed.b;
    const Real a = log_factor / pow(Real(spec.rotary_dim) / 2, b);
    for (size_t j = 0; j < turns.size(); ++j) turns[j] /= exp(a * pow(Real(j + 1), b));
  }
  void operator()(const YarnScaling& yarn) const {
    const Real factor = *yarn.factor;
    const Real log_factor = log(factor);
    const std::vector<Real> keep = YarnKeep(spec, yarn, static_cast<int64_t>(turns.size()));
    for (size_t j = 0; j < turns.size(); ++j) {
      turns[j] = *yarn.log_interpolation ? Real(turns[j] * exp(log_factor * (keep[j] - 1)))
                                         : Mix(turns[j], keep[j], factor);
    }
  }
  void operator()(const Llama3Scaling& llama3) const {
    const Real low = *llama3.low_freq_factor;
    const Real width = Real(*llama3.high_freq_factor) - low;
    for (Real& f : turns) {
      const Real within = abs(f) * Real(*llama3.original_max_position_embeddings);
      f = Mix(f, std::clamp(Real((within - low) / width), Real(0), Real(1)), *llama3.factor);
    }
  }
  void operator()(const LongRopeScaling& longrope) const {
    const bool is_long = *spec.sequence_length > *longrope.original_max_position_embeddings;
    const auto& divisors = is_long ? longrope.long_factor : longrope.short_factor;
    for (size_t j = 0; j < turns.size(); ++j) turns[j] /= Real(divisors[j]);
  }
};

struct Amplitude {
  const ResolvedSpec& spec;

  template <typename T>
  Real operator()(const T&) const {
    return 1;
  }
  Real operator()(const YarnScaling& yarn) const {
    if (yarn.attention_factor.has_value()) return *yarn.attention_factor;
    const auto g = [&](double mscale) {
      if (*yarn.factor <= 1) return Real(1);
      return Real(Real(*yarn.mscale_coefficient) * Real(mscale) * log(Real(*yarn.factor)) + 1);
    };
    const Real ratio =
        yarn.mscale.has_value() ? Real(g(*yarn.mscale) / g(*yarn.mscale_all_dim)) : g(1);
    return ratio * Real(*yarn.attn_factor);
  }
  Real operator()(const LongRopeScaling& longrope) const {
    const int64_t original = *longrope.original_max_position_embeddings;
    const bool is_long = *spec.sequence_length > original;
    const auto& mscale = is_long ? longrope.long_mscale : longrope.short_mscale;
    if (mscale.has_value()) return *mscale;
    if (longrope.attention_factor.has_value()) return *longrope.attention_factor;
    if (*longrope.factor <= 1) return 1;
    return sqrt(1 + log(Real(*longrope.factor)) / log(Real(original)));
  }
};

}  // namespace

Real BaseOf(const ResolvedSpec& spec, int axis) {
  const Real base = spec.axes_theta.empty() ? spec.rope_theta : spec.axes_theta[axis];
  if (const auto* mixed = std::get_if<MixedNtkScaling>(&spec.rope_scaling)) {
    return mixed->b.has_value() ? base : Real(base * Real(*mixed->factor));
  }
  const auto* ntk = std::get_if<NtkScaling>(&spec.rope_scaling);
  if (ntk == nullptr) return base;
  Real alpha = *ntk->factor;
  if (*ntk->dynamic) {
    alpha = alpha * Real(*spec.sequence_length) / Real(*ntk->original_max_position_embeddings) -
            (alpha - 1);
  }
  return base * pow(alpha, Real(spec.rotary_dim) / (spec.rotary_dim - 2));
}

void ScaleFrequencies(const ResolvedSpec& spec, std::vector<Real>& turns) {
  std::visit(Scaler{spec, turns}, spec.rope_scaling);
}

Real ScalingAmplitude(const ResolvedSpec& spec) {
  return std::visit(Amplitude{spec}, spec.rope_scaling);
}

}  // namespace phasor::frequencies
