// SPDX-License-Identifier: Apache-2.0
// Computes ggml's steps, factors and YaRN mix for each pair, in f32 throughout.
#include "kernels/plan/parity/ggml.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/plan/parity/elementary.h"
#include "kernels/plan/parity/rounding.h"

namespace phasor::parity {
namespace {

double Rn(double x) { return Round(Dtype::kFloat32, x); }
double Log32(double x) { return Log(Dtype::kFloat32, x); }

// ggml_rope_yarn_corr_dim.
double CorrectionDim(double dim, double length, double rotations, double theta) {
  const double turns = Rn(Rn(Rn(rotations) * 2) * Rn(std::numbers::pi));
  return Rn(Rn(dim * Log32(Rn(Rn(length) / turns))) / Rn(2 * Log32(theta)));
}

// rope_yarn_ramp * ext_factor for every pair.
void FillMix(const YarnScaling& yarn, double theta, double dim, std::vector<GgmlPair>& pairs) {
  const double length = static_cast<double>(*yarn.original_max_position_embeddings);
  const double start = std::floor(CorrectionDim(dim, length, *yarn.beta_fast, theta));
  const double end = std::ceil(CorrectionDim(dim, length, *yarn.beta_slow, theta));
  const double low = std::max(0.0, start);
  const double high = std::min(dim - 1, end);
  const double width = std::max(Rn(0.001), Rn(high - low));
  for (size_t j = 0; j < pairs.size(); ++j) {
    const double y = Rn(Rn(static_cast<double>(j) - low) / width);
    const double ramp = Rn(1 - std::clamp(y, 0.0, 1.0));
    pairs[j].mix = Rn(ramp * Rn(*yarn.extrapolation_factor));
  }
}

// convert_hf_to_gguf.py, generate_extra_tensors.
double Llama3Factor(const Llama3Scaling& rule, double frequency) {
  const double length = static_cast<double>(*rule.original_max_position_embeddings);
  const double wavelength = Rn(Rn(1 / frequency) * Rn(2 * std::numbers::pi));
  if (wavelength < Rn(length / *rule.high_freq_factor)) return 1;
  if (wavelength > Rn(length / *rule.low_freq_factor)) return Rn(*rule.factor);
  const double smooth = Rn(Rn(Rn(Rn(1 / wavelength) * length) - Rn(*rule.low_freq_factor)) /
                           Rn(*rule.high_freq_factor - *rule.low_freq_factor));
  return Rn(1 / Rn(Rn(Rn(1 - smooth) / Rn(*rule.factor)) + smooth));
}

void FillFactors(const GeometricLadder& ladder, std::vector<GgmlPair>& pairs) {
  if (ladder.scaling == nullptr) return;
  if (const auto* rule = std::get_if<LongRopeScaling>(ladder.scaling)) {
    const std::vector<double>& factors = LongRopeFactors(*rule, ladder.sequence_length);
    for (size_t j = 0; j < pairs.size(); ++j) pairs[j].factor = Rn(factors[j]);
  }
  if (const auto* rule = std::get_if<Llama3Scaling>(ladder.scaling)) {
    GeometricLadder plain = ladder;
    plain.steps = ParityFrequency::kFloat32Pow;
    plain.live = ladder.count;
    plain.scaling = nullptr;
    const std::vector<double> frequencies = Frequencies(plain);
    for (size_t j = 0; j < pairs.size(); ++j) {
      pairs[j].factor = Llama3Factor(*rule, frequencies[j]);
    }
  }
}

}  // namespace

GgmlLadder GgmlPairs(const GeometricLadder& ladder) {
  GgmlLadder out;
  const double dim = 2 * ladder.denominator;
  const double theta = Rn(ScaledTheta(ladder.theta, dim, ladder.scaling, ladder.sequence_length));
  GgmlPair pair;
  pair.step = Pow(Dtype::kFloat32, theta, Rn(-2 / dim));
  out.pairs.assign(static_cast<size_t>(ladder.count), pair);
  if (!out.pairs.empty()) out.pairs[0].restart = true;
  FillFactors(ladder, out.pairs);
  if (ladder.scaling == nullptr) return out;
  if (const auto* rule = std::get_if<LinearScaling>(ladder.scaling)) {
    out.scale = Rn(1 / Rn(*rule->factor));
  }
  if (const auto* rule = std::get_if<YarnScaling>(ladder.scaling)) {
    out.scale = Rn(1 / Rn(*rule->factor));
    out.mixes = *rule->extrapolation_factor != 0;
    FillMix(*rule, theta, dim, out.pairs);
  }
  return out;
}

}  // namespace phasor::parity
