// SPDX-License-Identifier: Apache-2.0
// Positions that index tables or are subtracted from one another: checks that they are integers,
// and finds the interval that they lie in. Threads: pure functions.
#ifndef PHASOR_KERNELS_TENSOR_INTEGER_POSITIONS_H_
#define PHASOR_KERNELS_TENSOR_INTEGER_POSITIONS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/tensor/positions.h"

namespace phasor {

// INVALID_ARGUMENT unless the type of every position is an integer type.
absl::Status CheckIntegerPositions(const Positions& positions, std::string_view path);

// The integers from min to max, both included.
struct Interval {
  int64_t min = 0;
  int64_t max = 0;
};

// The least and greatest position on `axis`. Needs integer positions, count() > 0, and data that is
// set. Takes constant time for ranges, else time in proportion to what the source holds.
Interval IntervalOf(const PositionSource& source, int axis);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_INTEGER_POSITIONS_H_
