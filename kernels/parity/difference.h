// SPDX-License-Identifier: Apache-2.0
// How far an upstream's arithmetic is from the exact one. Threads: pure functions.
#ifndef PHASOR_KERNELS_PARITY_DIFFERENCE_H_
#define PHASOR_KERNELS_PARITY_DIFFERENCE_H_

#include <cstdint>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/plan.h"

namespace phasor::parity {

struct Difference {
  double angle = 0;            // largest of an angle, radians, modulo one turn
  double value = 0;            // largest of a sine or cosine, amplitude included
  int64_t angle_position = 0;  // where
  int64_t value_position = 0;
};

// The positions that are looked at: all below 4096, then those around powers of two and 1024 more,
// equally spaced, and the last, below `context_length`, which is at least 1.
std::vector<int64_t> SampledPositions(int64_t context_length);

// Largest differences between the parity tables of `plan`, which has some, and its exact ones, the
// same position on every axis. `model`: the type of tables that have the model's.
Difference LargestDifference(const Plan& plan, int64_t context_length, Dtype model);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PARITY_DIFFERENCE_H_
