// SPDX-License-Identifier: Apache-2.0
// What COMPARE finds: of one row of keys, and of one layer. The definition, for the host and for a
// GPU.
//
// Order    Of a row: lane by lane in f64, squares rounded before they are added. Of a layer: token
//          by token, and head by head of each. So every backend finds the same numbers.
// Special  A NaN on either side makes the row bad, and the largest difference a NaN.
// Threads: plain values.
#ifndef PHASOR_KERNELS_OPS_KEY_DIFFERENCE_H_
#define PHASOR_KERNELS_OPS_KEY_DIFFERENCE_H_

#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace phasor {

// Keeps the larger one, or a NaN.
PHASOR_HD void KeepLargest(double value, double* largest) {
  if (*largest == *largest && !(value <= *largest)) *largest = value;
}

// How a row differs from what a move would give.
struct RowDifference {
  double squares = 0;            // sum of the squared differences
  double reference_squares = 0;  // the same of what a move would give
  double max_abs = 0;

  // Adds a lane.
  PHASOR_HD void Add(double expected, double found) {
    const double difference = found - expected;
    squares += difference * difference;
    reference_squares += expected * expected;
    KeepLargest(std::fabs(difference), &max_abs);
  }
};

// What COMPARE finds for one plane.
struct KeyReport {
  double max_abs = 0;
  double squares = 0;
  double reference_squares = 0;
  int64_t values = 0;
  int64_t bad_rows = 0;
  int64_t first_bad_token = -1;
  int64_t first_bad_head = -1;
  int64_t first_bad_slot = -1;

  // Adds a row of `lanes` lanes. It is bad if its relative RMS difference is beyond `tolerance`.
  void Add(const RowDifference& row, int64_t lanes, double tolerance, int64_t token, int64_t slot,
           int64_t head) {
    squares += row.squares;
    reference_squares += row.reference_squares;
    values += lanes;
    KeepLargest(row.max_abs, &max_abs);
    if (std::sqrt(row.squares) <= tolerance * std::sqrt(row.reference_squares)) return;
    if (bad_rows++ > 0) return;
    first_bad_token = token;
    first_bad_slot = slot;
    first_bad_head = head;
  }
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_KEY_DIFFERENCE_H_
