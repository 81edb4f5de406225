// SPDX-License-Identifier: Apache-2.0
// Frequencies in turns per unit position, correctly rounded to 2^-64, from multiprecision
// arithmetic. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_FREQUENCIES_H_
#define PHASOR_KERNELS_PLAN_FREQUENCIES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/math/phase.h"
#include "kernels/spec/spec.h"

namespace phasor {

// Frequencies of a resolved spec, position scales included: [layers, heads * pairs of a head],
// where layers is the number of axes for axis rule DENSE and 1 for others. Nothing when a magnitude
// is 2^63 turns or more.
std::optional<std::vector<Frequency>> FrequenciesOf(const ResolvedSpec& spec);

// The spec's phase, one per pair, as fractions of a turn times 2^64; empty where it is. Nothing
// when a magnitude is 2^63 turns or more.
std::optional<std::vector<uint64_t>> PhasesOf(const ResolvedSpec& spec);

// The factor of sine and cosine, that of rope_scaling included: the nearest double, which may not
// be finite.
double AmplitudeOf(const ResolvedSpec& spec);

// -log2(zeta_j) / scale_base for j = 0..count-1, zeta_j = (j + 0.4 count) / (1.4 count), as
// fractions times 2^64: how many octaves an xPos amplitude falls per unit of position. scale_base
// >= 2.
std::vector<uint64_t> XposRates(int64_t count, double scale_base);

// Nearest double of f in radians per unit position.
double RadiansPerUnit(Frequency f);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_FREQUENCIES_H_
