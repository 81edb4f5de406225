// SPDX-License-Identifier: Apache-2.0
// Computes frequencies and scalings step by step as torch does. Python numbers are doubles; they
// become f32 when they meet a tensor. `number / tensor` is the rounded reciprocal times the number.
#include "kernels/plan/parity/ladder.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/plan/parity/elementary.h"
#include "kernels/plan/parity/rounding.h"

namespace phasor::parity {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// The operations of one type on tensors. Every argument is rounded to the type first.
struct Tensor {
  Dtype type;

  double Rn(double x) const { return Round(type, x); }
  double Add(double a, double b) const { return Rn(Rn(a) + Rn(b)); }
  double Sub(double a, double b) const { return Rn(Rn(a) - Rn(b)); }
  double Mul(double a, double b) const { return Rn(Rn(a) * Rn(b)); }
  double Div(double a, double b) const { return Rn(Rn(a) / Rn(b)); }
  double NumberOver(double number, double a) const { return Mul(Div(1, a), number); }
  double Power(double a, double b) const { return Pow(type, Rn(a), Rn(b)); }
};

double Log64(double x) { return Log(Dtype::kFloat64, x); }

Tensor TypeOf(ParityFrequency steps) {
  return {steps == ParityFrequency::kFloat64 ? Dtype::kFloat64 : Dtype::kFloat32};
}

template <typename Rule>
const Rule* Get(const RopeScaling* scaling) {
  return scaling == nullptr ? nullptr : std::get_if<Rule>(scaling);
}

// base ** (j / denominator), before the reciprocal.
double Period(const GeometricLadder& ladder, const Tensor& t, double theta, int64_t j) {
  return t.Power(theta, t.Div(static_cast<double>(j), ladder.denominator));
}

// exp(-log(base) * j / denominator), or with the quotient taken before the product.
double ByExponential(const GeometricLadder& ladder, const Tensor& t, double theta, int64_t j) {
  const double log_theta = Log64(theta);
  const double index = static_cast<double>(j);
  const double exponent = ladder.steps == ParityFrequency::kFloat32ExpStep
                              ? t.Mul(index, -(log_theta / ladder.denominator))
                              : t.Div(t.Mul(-log_theta, index), ladder.denominator);
  return Exp(t.type, exponent);
}

double Plain(const GeometricLadder& ladder, const Tensor& t, double theta, int64_t j) {
  const bool exponential = ladder.steps == ParityFrequency::kFloat32Exp ||
                           ladder.steps == ParityFrequency::kFloat32ExpStep;
  return exponential ? ByExponential(ladder, t, theta, j) : t.Div(1, Period(ladder, t, theta, j));
}

double Llama3(const Llama3Scaling& rule, const Tensor& t, double frequency) {
  const double length = static_cast<double>(*rule.original_max_position_embeddings);
  const double wavelength = t.NumberOver(kTwoPi, frequency);
  if (wavelength > t.Rn(length / *rule.low_freq_factor)) return t.Div(frequency, *rule.factor);
  if (wavelength < t.Rn(length / *rule.high_freq_factor)) return frequency;
  const double smooth = t.Div(t.Sub(t.NumberOver(length, wavelength), *rule.low_freq_factor),
                              *rule.high_freq_factor - *rule.low_freq_factor);
  const double divided = t.Div(t.Mul(t.Sub(1, smooth), frequency), *rule.factor);
  return t.Add(divided, t.Mul(smooth, frequency));
}

double Yarn(const YarnScaling& rule, YarnRange range, const Tensor& t, double period, int64_t j) {
  const double width = range.low == range.high ? 0.001 : range.high - range.low;
  const double ramp = t.Div(t.Sub(static_cast<double>(j), range.low), width);
  double kept = t.Sub(1, std::clamp(ramp, 0.0, 1.0));
  if (*rule.extrapolation_factor != 1) kept = t.Mul(kept, *rule.extrapolation_factor);
  const double plain = t.Div(1, period);
  const double share = t.Sub(1, kept);
  if (*rule.log_interpolation) {
    const double divided = t.Div(plain, *rule.factor);
    return Exp(t.type, t.Add(t.Mul(kept, Log(t.type, plain)), t.Mul(share, Log(t.type, divided))));
  }
  const double divided = t.Div(1, t.Mul(*rule.factor, period));
  return t.Add(t.Mul(divided, share), t.Mul(plain, kept));
}

double MixedNtk(const MixedNtkScaling& rule, const Tensor& t, double dim, double plain, int64_t j) {
  if (!rule.b.has_value()) return t.Div(plain, Pow(Dtype::kFloat64, *rule.factor, 2 / dim));
  const double a = Log64(*rule.factor) / Pow(Dtype::kFloat64, dim / 2, *rule.b);
  const double power = t.Power(static_cast<double>(j + 1), *rule.b);
  return t.Div(plain, Exp(t.type, t.Mul(a, power)));
}

// Dynamic NTK at `length`, which upstream holds in an f32 tensor of one element.
double DynamicTheta(const NtkScaling& rule, double theta, double dim, int64_t length) {
  const Tensor t{Dtype::kFloat32};
  const int64_t original = *rule.original_max_position_embeddings;
  if (length <= original) return theta;
  const double stretched =
      t.Div(t.Mul(*rule.factor, static_cast<double>(length)), static_cast<double>(original));
  return t.Mul(theta, t.Power(t.Sub(stretched, *rule.factor - 1), dim / (dim - 2)));
}

}  // namespace

double ScaledTheta(double theta, double dim, const RopeScaling* scaling, int64_t sequence_length) {
  if (const auto* rule = Get<MixedNtkScaling>(scaling)) {
    return rule->b.has_value() ? theta : theta * *rule->factor;
  }
  const auto* rule = Get<NtkScaling>(scaling);
  if (rule == nullptr) return theta;
  if (*rule->dynamic) return DynamicTheta(*rule, theta, dim, sequence_length);
  return theta * Pow(Dtype::kFloat64, *rule->factor, dim / (dim - 2));
}

YarnRange CorrectionRange(const YarnScaling& yarn, double theta, double dim) {
  const double length = static_cast<double>(*yarn.original_max_position_embeddings);
  const auto at = [&](double rotations) {
    return dim * Log64(length / (rotations * 2 * std::numbers::pi)) / (2 * Log64(theta));
  };
  YarnRange range = {at(*yarn.beta_fast), at(*yarn.beta_slow)};
  if (*yarn.truncate) range = {std::floor(range.low), std::ceil(range.high)};
  return {std::max(range.low, 0.0), std::min(range.high, dim - 1)};
}

const std::vector<double>& LongRopeFactors(const LongRopeScaling& rule, int64_t sequence_length) {
  return sequence_length > *rule.original_max_position_embeddings ? rule.long_factor
                                                                  : rule.short_factor;
}

std::vector<double> Frequencies(const GeometricLadder& ladder) {
  const Tensor t = TypeOf(ladder.steps);
  const RopeScaling* const scaling = ladder.scaling;
  const double dim = 2 * ladder.denominator;
  const double theta = ScaledTheta(ladder.theta, dim, scaling, ladder.sequence_length);
  const auto* yarn = Get<YarnScaling>(scaling);
  const YarnRange range = yarn != nullptr ? CorrectionRange(*yarn, theta, dim) : YarnRange();
  const auto one = [&](int64_t j) {
    if (yarn != nullptr) return Yarn(*yarn, range, t, Period(ladder, t, theta, j), j);
    if (const auto* rule = Get<LongRopeScaling>(scaling)) {
      const double factor = LongRopeFactors(*rule, ladder.sequence_length)[j];
      return t.Div(1, t.Mul(factor, Period(ladder, t, theta, j)));
    }
    const double plain = Plain(ladder, t, theta, j);
    if (const auto* rule = Get<LinearScaling>(scaling)) return t.Div(plain, *rule->factor);
    if (const auto* rule = Get<Llama3Scaling>(scaling)) return Llama3(*rule, t, plain);
    if (const auto* rule = Get<MixedNtkScaling>(scaling)) return MixedNtk(*rule, t, dim, plain, j);
    return plain;
  };
  std::vector<double> frequencies(static_cast<size_t>(ladder.count), 0.0);
  for (int64_t j = 0; j < std::min(ladder.count, ladder.live); ++j) frequencies[j] = one(j);
  return frequencies;
}

}  // namespace phasor::parity
