// SPDX-License-Identifier: Apache-2.0
// See listener_watch.h.
#include "server/listener_watch.h"

#include <utility>

#include "absl/time/clock.h"

namespace phasor {

ListenerWatch::ListenerWatch(const Listener* listener, std::function<void(bool)> changed,
                             absl::Duration period)
    : listener_(*listener),
      changed_(std::move(changed)),
      period_(period),
      thread_([this] { Watch(); }) {}

ListenerWatch::~ListenerWatch() {
  {
    engine::MutexLock lock(&mu_);
    ending_ = true;
    ending_changed_.Signal();
  }
  thread_.join();
}

void ListenerWatch::Watch() {
  bool accepting = true;
  while (WaitForTurn()) {
    if (listener_.accepting() == accepting) continue;
    accepting = !accepting;
    changed_(accepting);
  }
}

bool ListenerWatch::WaitForTurn() {
  engine::MutexLock lock(&mu_);
  const absl::Time next = absl::Now() + period_;
  while (!ending_ && absl::Now() < next) ending_changed_.WaitUntil(&mu_, next);
  return !ending_;
}

}  // namespace phasor
