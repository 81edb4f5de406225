// SPDX-License-Identifier: Apache-2.0
// See listener_watch.h.
#include "server/listener_watch.h"

#include <utility>

namespace phasor {

ListenerWatch::ListenerWatch(const Listener* listener, std::function<void(bool)> changed,
                             absl::Duration period)
    : listener_(*listener),
      changed_(std::move(changed)),
      period_(period),
      thread_([this] { Watch(); }) {}

ListenerWatch::~ListenerWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  ending_changed_.notify_all();
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
  std::unique_lock<std::mutex> lock(mutex_);
  return !ending_changed_.wait_for(lock, absl::ToChronoNanoseconds(period_),
                                   [this] { return ending_; });
}

}  // namespace phasor
