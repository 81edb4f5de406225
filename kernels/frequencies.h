// SPDX-License-Identifier: Apache-2.0
// Frequencies in turns per unit position, correctly rounded to 2^-64, from multiprecision
// arithmetic. Threads: pure functions.
#ifndef PHASOR_KERNELS_FREQUENCIES_H_
#define PHASOR_KERNELS_FREQUENCIES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/phase.h"

namespace phasor {

// position_scale * base^(-j / denominator) / (2 pi) for j = 0..count-1.
// base > 0, denominator != 0, all finite. Nothing when a magnitude is 2^63 turns or more.
std::optional<std::vector<Frequency>> GeometricFrequencies(double base, double denominator,
                                                           int64_t count, double position_scale);

// position_scale / (min_period * (max_period / min_period)^(j / denominator)) for j = 0..count-1.
// Periods > 0, denominator != 0, all finite. Nothing when a magnitude is 2^63 turns or more.
std::optional<std::vector<Frequency>> PeriodFrequencies(double min_period, double max_period,
                                                        double denominator, int64_t count,
                                                        double position_scale);

// -log2(zeta_j) / scale_base for j = 0..count-1, zeta_j = (j + 0.4 count) / (1.4 count), as fractions
// times 2^64: how many octaves an xPos amplitude falls per unit of position. scale_base >= 2.
std::vector<uint64_t> XposRates(int64_t count, double scale_base);

// Nearest double of f in radians per unit position.
double RadiansPerUnit(Frequency f);

}  // namespace phasor

#endif  // PHASOR_KERNELS_FREQUENCIES_H_
