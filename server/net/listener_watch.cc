// SPDX-License-Identifier: Apache-2.0
// Asks a listener once per period whether it still accepts connections.
#include "server/net/listener_watch.h"

#include <utility>

namespace phasor {

ListenerWatch::ListenerWatch(const Listener* listener, std::function<void(bool)> changed,
                             absl::Duration period)
    : listener_(*listener),
      changed_(std::move(changed)),
      period_(period),
      thread_([this] { Watch(); }) {}

ListenerWatch::~ListenerWatch() {
  stop_.Stop();
  thread_.join();
}

void ListenerWatch::Watch() {
  bool told = true, before = true;
  while (!stop_.WaitFor(period_)) {
    const bool now = listener_.accepting();
    // Report a failure only if it is seen twice in a row: after a pause of the whole process, this
    // thread may look before the listener's thread has had a turn.
    const bool sure = now || !before;
    before = now;
    if (!sure || now == told) continue;
    told = now;
    changed_(now);
  }
}

}  // namespace phasor
