// SPDX-License-Identifier: Apache-2.0
// Frequencies in radians per unit position, computed in the steps of upstream implementations: the
// same operations in the same order, each rounded to upstream's type.
//
// Source   transformers modeling_rope_utils.py (default, linear, dynamic, yarn, llama3, longrope,
//          proportional); vLLM ntk_scaling_rope.py, yarn_scaling_rope.py, grok1.py; diffusers
//          get_timestep_embedding; tensor2tensor and DDPM get_timing_signal / timestep embedding.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_LADDER_H_
#define PHASOR_KERNELS_PLAN_PARITY_LADDER_H_

#include <cstdint>
#include <vector>

#include "kernels/spec/spec.h"

namespace phasor::parity {

// theta^(-j / denominator) for j = 0..count-1, then scaled. Pairs from `live` on stay 0.
struct GeometricLadder {
  ParityFrequency steps = ParityFrequency::kFloat32Pow;
  double theta = 10000;
  double denominator = 1;
  int64_t count = 0;
  int64_t live = 0;
  const RopeScaling* scaling = nullptr;  // resolved; nullptr: none
  int64_t sequence_length = 0;           // for dynamic NTK and LongRoPE
};
std::vector<double> Frequencies(const GeometricLadder& ladder);

// The base after an NTK rule; other rules do not change it. `dim` is twice the denominator.
double ScaledTheta(double theta, double dim, const RopeScaling* scaling, int64_t sequence_length);

// The pairs between which YaRN's ramp rises.
struct YarnRange {
  double low = 0;
  double high = 0;
};
YarnRange CorrectionRange(const YarnScaling& yarn, double theta, double dim);
// The divisors of LongRoPE that apply to `sequence_length`.
const std::vector<double>& LongRopeFactors(const LongRopeScaling& rule, int64_t sequence_length);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_LADDER_H_
