// SPDX-License-Identifier: Apache-2.0
// The multiprecision numbers behind kernels/frequencies*.cc, which alone may include this.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_FREQUENCIES_REAL_H_
#define PHASOR_KERNELS_PLAN_FREQUENCIES_REAL_H_

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cstdint>
#include <vector>

#include "kernels/spec/spec.h"

namespace phasor::frequencies {

inline constexpr int kBits = 256;
using Real = boost::multiprecision::number<
    boost::multiprecision::cpp_bin_float<kBits, boost::multiprecision::digit_base_2>,
    boost::multiprecision::et_off>;

const Real& TwoPi();

// first * exp(log_ratio)^j for j = 0..terms-1, where magnitudes beyond 2^8192 and below 2^-8192,
// which no factor of a spec brings back, may be any such number and 0.
std::vector<Real> PowerLadder(const Real& first, const Real& log_ratio, int64_t terms);

// The base of axis `axis`'s geometric ladder: rope_theta or axes_theta, changed by an NTK rule.
Real BaseOf(const ResolvedSpec& spec, int axis);

// Applies rope_scaling, less what BaseOf did, to frequencies in turns: one ladder, or several for
// the linear rule.
void ScaleFrequencies(const ResolvedSpec& spec, std::vector<Real>& turns);

// The amplitude that rope_scaling asks for, 1 without.
Real ScalingAmplitude(const ResolvedSpec& spec);

}  // namespace phasor::frequencies

#endif  // PHASOR_KERNELS_PLAN_FREQUENCIES_REAL_H_
