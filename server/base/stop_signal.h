// SPDX-License-Identifier: Apache-2.0
// StopSignal: the pauses of a thread that works from time to time, until another one stops it.
#ifndef PHASOR_SERVER_BASE_STOP_SIGNAL_H_
#define PHASOR_SERVER_BASE_STOP_SIGNAL_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/base/steady_time.h"
#include "server/base/mutex.h"

namespace phasor {

// Threads: any.
class StopSignal {
 public:
  // Ends the waits that go on, and all later ones at once.
  void Stop() {
    MutexLock lock(&mu_);
    stopped_ = true;
    changed_.SignalAll();
  }
  // Waits for `time` by the steady clock. True: it was stopped.
  bool WaitFor(absl::Duration time) {
    const absl::Time until = SteadyNow() + time;
    MutexLock lock(&mu_);
    while (!stopped_ && SteadyNow() < until) changed_.WaitFor(&mu_, until - SteadyNow());
    return stopped_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_STOP_SIGNAL_H_
