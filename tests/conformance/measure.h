// SPDX-License-Identifier: Apache-2.0
// What Phasor computes for a golden case, next to the true values.
#ifndef PHASOR_TESTS_CONFORMANCE_MEASURE_H_
#define PHASOR_TESTS_CONFORMANCE_MEASURE_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"
#include "kernels/spec/spec.h"
#include "tests/conformance/golden.h"

namespace phasor::testing {

// The largest difference of a table from another, and where.
struct Difference {
  double largest = 0;
  double allowed = 0;        // where `largest_share` is
  double largest_share = 0;  // difference / allowed; more than 1 breaks the contract
  std::string where;
  int count = 0, close = 0;  // FromUpstream: values, and those at most one unit apart
};

// Results at the case's positions and samples: [position, sample].
struct Samples {
  Table<double> cos, sin;  // rotary: a pair (1, 0) turns to (cos, sin)
  Table<double> values;    // encodings
};

// Computes `spec` at the positions of `golden` in one dtype. Errors are those of PrepareEncode and
// PrepareRope.
absl::StatusOr<Samples> Compute(const GoldenCase& golden, const Spec& spec, Dtype dtype);

// f64 results against the truth and the contract of docs/numerics.md.
Difference FromTruth(const GoldenCase& golden, const Spec& spec, const Samples& got);

// f32 results against upstream's, in units in the last place of an f32. Allowed is one, and what a
// frequency that is one unit off turns to at the position.
Difference FromUpstream(const GoldenCase& golden, const Samples& got);

// The rotation of InputLane's vector against upstream's, in the dtype of `upstream`.
absl::StatusOr<Difference> FromUpstreamRotation(const GoldenCase& golden, const Spec& spec,
                                                const GoldenCase::Rotated& upstream);

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_CONFORMANCE_MEASURE_H_
