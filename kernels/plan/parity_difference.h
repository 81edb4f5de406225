// SPDX-License-Identifier: Apache-2.0
// Measures how far an upstream's arithmetic is from the exact one. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_DIFFERENCE_H_
#define PHASOR_KERNELS_PLAN_PARITY_DIFFERENCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/dtype.h"
#include "kernels/plan/plan.h"

namespace phasor::parity {

// The largest differences, and the positions where they occur.
struct Difference {
  double angle = 0;            // of an angle, radians, modulo one turn
  double value = 0;            // of a sine or cosine, amplitude included
  int64_t angle_position = 0;  // where
  int64_t value_position = 0;

  friend bool operator==(const Difference&, const Difference&) = default;
};

// The most positions of `plan` that a report examines: those of 2^19 angles (about a fifth of a
// second), and at least 16.
int64_t MostPositions(const Plan& plan);

// The positions below `context_length` (>= 1) to examine: all below 4096, then those around powers
// of two, 1024 more at equal distances, and the last. If there are more than `at_most`, that many
// of them, evenly chosen.
std::vector<int64_t> SampledPositions(int64_t context_length, int64_t at_most);

// The largest differences between the parity tables of `plan`, which must have some, and its exact
// tables. Every axis has the same position. `model` is the type of the stages that use the model's.
Difference LargestDifference(const Plan& plan, absl::Span<const int64_t> positions, Dtype model);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_DIFFERENCE_H_
