// SPDX-License-Identifier: Apache-2.0
// Rotary specs of requests: their width, and what two of them must have in common for keys to move
// from one to the other.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_ROTARY_SPEC_H_
#define PHASOR_KERNELS_REQUEST_ROTARY_SPEC_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/spec.h"

namespace phasor {

// Resolves a rotary spec. If nothing sets head_dim, it is `head_dim`. INVALID_ARGUMENT: `spec` is
// an encoding. Also as ResolveSpec.
absl::StatusOr<ResolvedSpec> ResolveRotarySpec(Spec spec, int64_t head_dim, std::string_view path);

// An amplitude of 0 cannot be undone. `path` is that of the spec.
absl::Status CheckAmplitude(const Plan& plan, std::string_view path);

// INVALID_ARGUMENT: `from` rotates other lanes or another number of heads than `to`, or cannot be
// undone. `from_path` is that of its spec.
absl::Status CheckDelta(const Plan& from, const Plan& to, std::string_view from_path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_ROTARY_SPEC_H_
