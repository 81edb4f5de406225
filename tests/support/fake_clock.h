// SPDX-License-Identifier: Apache-2.0
// A clock that moves only when a test moves it.
#ifndef PHASOR_TESTS_SUPPORT_FAKE_CLOCK_H_
#define PHASOR_TESTS_SUPPORT_FAKE_CLOCK_H_

#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/engine/engine.h"

namespace phasor::engine {

// Threads: any. Who waits on it must outlive a running Advance.
class FakeClock final : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(&mu_);
    return now_;
  }

  void Wait(CondVar* changed, Mutex* mutex, absl::Time until) override {
    const std::pair waiter(changed, mutex);
    {
      MutexLock lock(&mu_);
      if (now_ >= until) return;
      waiters_.insert(waiter);
      ++waits_;
    }
    changed->Wait(mutex);
    MutexLock lock(&mu_);
    waiters_.erase(waiters_.find(waiter));
  }

  // How often a thread has waited.
  int waits() const {
    MutexLock lock(&mu_);
    return waits_;
  }

  void Advance(absl::Duration by) {
    std::multiset<std::pair<CondVar*, Mutex*>> waiters;
    {
      MutexLock lock(&mu_);
      now_ += by;
      waiters = waiters_;
    }
    // A waiter holds its mutex until it really waits, so none misses the signal.
    for (const auto& [changed, mutex] : waiters) {
      MutexLock lock(mutex);
      changed->SignalAll();
    }
  }

 private:
  mutable Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_) = absl::UnixEpoch() + absl::Hours(24);
  std::multiset<std::pair<CondVar*, Mutex*>> waiters_ ABSL_GUARDED_BY(mu_);
  int waits_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace phasor::engine

#endif  // PHASOR_TESTS_SUPPORT_FAKE_CLOCK_H_
