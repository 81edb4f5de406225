// SPDX-License-Identifier: Apache-2.0
// Frequencies in turns per unit position, correctly rounded to 2^-64. Computed in multiprecision
// arithmetic. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_FREQUENCIES_H_
#define PHASOR_KERNELS_PLAN_FREQUENCIES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/math/phase.h"
#include "kernels/spec/spec.h"

namespace phasor {

// The frequencies of a resolved spec, with position scales applied: [layers, heads * pairs of a
// head]. Axis rule DENSE has one layer per axis, other rules have one. nullopt if a magnitude is
// 2^63 turns or more.
std::optional<std::vector<Frequency>> FrequenciesOf(const ResolvedSpec& spec);

// The spec's phase as fractions of a turn times 2^64, one per pair; empty if the spec has no phase.
// nullopt if a magnitude is 2^63 turns or more.
std::optional<std::vector<uint64_t>> PhasesOf(const ResolvedSpec& spec);

// The factor of sine and cosine, with that of rope_scaling: the nearest double, which may be
// infinite or NaN.
double AmplitudeOf(const ResolvedSpec& spec);

// xPos rates: how many octaves an amplitude falls per unit of position, times 2^64.
// -log2(zeta_j) / scale_base for j = 0..count-1, with zeta_j = (j + 0.4 count) / (1.4 count). Needs
// scale_base >= 2.
std::vector<uint64_t> XposRates(int64_t count, double scale_base);

// The double nearest to f in radians per unit position.
double RadiansPerUnit(Frequency f);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_FREQUENCIES_H_
