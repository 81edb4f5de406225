// SPDX-License-Identifier: Apache-2.0
// What two specs must have in common for keys to move from one to the other.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_DELTA_H_
#define PHASOR_KERNELS_REQUEST_DELTA_H_

#include <string_view>

#include "absl/status/status.h"
#include "kernels/plan/plan.h"

namespace phasor {

// An amplitude of 0 cannot be undone. `path` is that of the spec.
absl::Status CheckAmplitude(const Plan& plan, std::string_view path);

// INVALID_ARGUMENT: `from` rotates other lanes or another number of heads than `to`, or cannot be
// undone. `from_path` is that of its spec.
absl::Status CheckDelta(const Plan& from, const Plan& to, std::string_view from_path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_DELTA_H_
