// SPDX-License-Identifier: Apache-2.0
// Whether a spec's parity arithmetic is complete and has a meaning. Threads: pure functions.
#ifndef PHASOR_KERNELS_SPEC_PARITY_CHECK_H_
#define PHASOR_KERNELS_SPEC_PARITY_CHECK_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/spec/spec.h"

namespace phasor::parity {

// `given` with every stage that a spec like `spec` uses. `path` is that of the spec.
// INVALID_ARGUMENT: a stage is missing, or no upstream computes so.
absl::StatusOr<ParityArithmetic> Resolve(const ParityArithmetic& given, const ResolvedSpec& spec,
                                         std::string_view path);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_SPEC_PARITY_CHECK_H_
