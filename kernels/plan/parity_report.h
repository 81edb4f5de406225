// SPDX-License-Identifier: Apache-2.0
// Compares a spec's PARITY arithmetic with the exact one, for ResolveSpec's answer.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_REPORT_H_
#define PHASOR_KERNELS_PLAN_PARITY_REPORT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"
#include "kernels/plan/parity_difference.h"
#include "kernels/spec/spec.h"

namespace phasor::parity {

// What to compare. Errors name it `parity_comparison`, its name in ResolveSpecRequest.
struct Comparison {
  std::optional<int64_t> context_length;  // compare positions below it; default: the preset's
  Dtype model = Dtype::kBFloat16;         // the model's type

  friend bool operator==(const Comparison&, const Comparison&) = default;
};

// The result of a comparison.
struct Report {
  int64_t context_length = 0;
  int64_t positions = 0;  // how many were compared
  Dtype model = Dtype::kBFloat16;
  Difference largest;
  std::vector<double> inv_freq;  // as rounded, radians per position; empty for GGML

  friend bool operator==(const Report&, const Report&) = default;
};

// Compares upstream's arithmetic, given by the `parity` block of `spec` or of its preset, with the
// exact one; `spec` may ask for either precision. The result is the same on every machine.
// nullopt: no context_length was given, and no parity block or no context length is known, or the
// spec has no PARITY arithmetic.
// INVALID_ARGUMENT: a context_length below 1 or for a spec without parity, or a `model` that is not
// FLOAT64, FLOAT32, FLOAT16 or BFLOAT16.
absl::StatusOr<std::optional<Report>> Compare(Spec spec, const Comparison& comparison);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_REPORT_H_
