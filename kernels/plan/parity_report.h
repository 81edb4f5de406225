// SPDX-License-Identifier: Apache-2.0
// How far a spec's PARITY arithmetic is from the exact one, as ResolveSpec tells it.
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

// What to look at: `parity_comparison` of a ResolveSpecRequest, as errors name it.
struct Comparison {
  std::optional<int64_t> context_length;  // positions below it; the preset's when not given
  Dtype model = Dtype::kBFloat16;         // the model's type

  friend bool operator==(const Comparison&, const Comparison&) = default;
};

struct Report {
  int64_t context_length = 0;
  int64_t positions = 0;  // that were looked at
  Dtype model = Dtype::kBFloat16;
  Difference largest;
  std::vector<double> inv_freq;  // as rounded, radians per position; empty for GGML

  friend bool operator==(const Report&, const Report&) = default;
};

// How far upstream's arithmetic, the `parity` block of `spec` or of its preset, is from the exact
// one; `spec` may ask for either. The numbers are the same everywhere. nullopt: nothing is known of
// an upstream, or how far to look, and no context_length was given. INVALID_ARGUMENT: a
// context_length below 1, or for a spec without PARITY; a `model` that is not FLOAT64, FLOAT32,
// FLOAT16 or BFLOAT16.
absl::StatusOr<std::optional<Report>> Compare(Spec spec, const Comparison& comparison);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_REPORT_H_
