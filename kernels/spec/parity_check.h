// SPDX-License-Identifier: Apache-2.0
// Checks that a spec's parity arithmetic is complete and that some upstream computes it.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_PARITY_CHECK_H_
#define PHASOR_KERNELS_SPEC_PARITY_CHECK_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/spec/spec.h"

namespace phasor::parity {

// Returns `given` with every stage set that a spec like `spec` uses. `path` is the path of the
// spec. INVALID_ARGUMENT: a stage is missing, or no upstream computes this combination.
absl::StatusOr<ParityArithmetic> Resolve(const ParityArithmetic& given, const ResolvedSpec& spec,
                                         std::string_view path);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_SPEC_PARITY_CHECK_H_
