// SPDX-License-Identifier: Apache-2.0
// A clock that nobody sets, and Clock: an interface over it that tests implement.
#ifndef PHASOR_SERVER_BASE_CLOCK_H_
#define PHASOR_SERVER_BASE_CLOCK_H_

#include <chrono>

#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace phasor {

// The time since the system started, as if that was 1970. Ages, waits and deadlines are measured by
// it: they must not notice that the wall clock is set, as absl::Now() does. It is not a date.
absl::Time SteadyNow();

// The wall clock's time after `wait`, for functions of gRPC, which want a point of time. They turn
// it into a wait at once.
std::chrono::system_clock::time_point WallTimeAfter(absl::Duration wait);

// Tells the time and waits for it. Tests pass their own. Threads: any.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
  // Waits on `changed`, with `mutex` held, until it is signalled or this clock reaches `until`. May
  // return early.
  virtual void Wait(CondVar* changed, Mutex* mutex, absl::Time until) = 0;
  static Clock* Real();  // SteadyNow; lives until the process ends
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_CLOCK_H_
