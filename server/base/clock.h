// SPDX-License-Identifier: Apache-2.0
// Clock: the steady time, and waiting for it, behind an interface that tests implement.
#ifndef PHASOR_SERVER_BASE_CLOCK_H_
#define PHASOR_SERVER_BASE_CLOCK_H_

#include "absl/time/time.h"
#include "kernels/base/steady_time.h"
#include "server/base/mutex.h"

namespace phasor {

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
