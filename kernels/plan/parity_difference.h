// SPDX-License-Identifier: Apache-2.0
// How far an upstream's arithmetic is from the exact one. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_DIFFERENCE_H_
#define PHASOR_KERNELS_PLAN_PARITY_DIFFERENCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/dtype.h"
#include "kernels/plan/plan.h"

namespace phasor::parity {

struct Difference {
  double angle = 0;            // largest of an angle, radians, modulo one turn
  double value = 0;            // largest of a sine or cosine, amplitude included
  int64_t angle_position = 0;  // where
  int64_t value_position = 0;

  friend bool operator==(const Difference&, const Difference&) = default;
};

// How many positions of `plan` a report looks at, at most: 2^19 angles, about a fifth of a second,
// and at least 16.
int64_t MostPositions(const Plan& plan);

// The positions that are looked at, below `context_length`, which is at least 1: all below 4096,
// then those around powers of two and 1024 more, equally spaced, and the last. If these are more
// than `at_most`, as many of them, evenly chosen.
std::vector<int64_t> SampledPositions(int64_t context_length, int64_t at_most);

// Largest differences at `positions` between the parity tables of `plan`, which has some, and its
// exact ones, the same position on every axis. `model`: the type of tables that have the model's.
Difference LargestDifference(const Plan& plan, absl::Span<const int64_t> positions, Dtype model);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_DIFFERENCE_H_
