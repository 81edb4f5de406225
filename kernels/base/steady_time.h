// SPDX-License-Identifier: Apache-2.0
// A clock that nobody sets. Ages, waits and deadlines are measured by it: they must not notice that
// the wall clock is set. absl::Now() does, up to two seconds late.
#ifndef PHASOR_KERNELS_BASE_STEADY_TIME_H_
#define PHASOR_KERNELS_BASE_STEADY_TIME_H_

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace phasor {

// The time since the system started, as if that was 1970. It is not a date.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// The wall clock's time after `wait`, at most a year, for functions of gRPC, which want a point of
// time. They turn it into a wait at once. A wait that is over gives a time that has passed.
inline std::chrono::system_clock::time_point WallTimeAfter(absl::Duration wait) {
  constexpr absl::Duration kYear = absl::Hours(24 * 365);
  return std::chrono::system_clock::now() +
         absl::ToChronoNanoseconds(std::clamp(wait, -absl::Seconds(1), kYear));
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_STEADY_TIME_H_
