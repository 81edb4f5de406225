// SPDX-License-Identifier: Apache-2.0
// The multiprecision numbers and formulas behind frequencies.h. Only kernels/plan/frequencies*.cc
// may include this. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_FREQUENCIES_REAL_H_
#define PHASOR_KERNELS_PLAN_FREQUENCIES_REAL_H_

#include <cstdint>
#include <vector>

#include "kernels/math/multiprecision.h"
#include "kernels/spec/spec.h"

namespace phasor::frequencies {

inline constexpr int kBits = 256;
using Real = RealOf<kBits>;

const Real& TwoPi();

// first * exp(log_ratio)^j for j = 0..terms-1. Magnitudes beyond 2^8192 may be replaced by any
// number beyond it, and those below 2^-8192 by 0: no factor of a spec brings them back.
std::vector<Real> PowerLadder(const Real& first, const Real& log_ratio, int64_t terms);

// The base of the geometric ladder of `axis`: rope_theta or axes_theta, as an NTK rule changes it.
Real BaseOf(const ResolvedSpec& spec, int axis);

// Applies rope_scaling, except what BaseOf applies, to frequencies in turns. They are one ladder;
// for the linear rule they may be several.
void ScaleFrequencies(const ResolvedSpec& spec, std::vector<Real>& turns);

// The amplitude that rope_scaling asks for; 1 without rope_scaling.
Real ScalingAmplitude(const ResolvedSpec& spec);

}  // namespace phasor::frequencies

#endif  // PHASOR_KERNELS_PLAN_FREQUENCIES_REAL_H_
