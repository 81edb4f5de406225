// SPDX-License-Identifier: Apache-2.0
// Notices when a listener no longer takes connections, which nobody inside would hear of.
#ifndef PHASOR_SERVER_NET_LISTENER_WATCH_H_
#define PHASOR_SERVER_NET_LISTENER_WATCH_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "server/net/listener.h"

namespace phasor {

// Threads: one of its own, until the destructor.
class ListenerWatch {
 public:
  // Asks `listener`, which takes connections and must outlive this, once a `period`, and calls
  // `changed` on the watch's thread when the answer is another one.
  ListenerWatch(const Listener* listener, std::function<void(bool accepting)> changed,
                absl::Duration period = absl::Seconds(1));
  ~ListenerWatch();

 private:
  void Watch();
  // False when the watch ends.
  bool WaitForTurn();

  const Listener& listener_;
  const std::function<void(bool)> changed_;
  const absl::Duration period_;
  std::mutex mutex_;
  std::condition_variable ending_changed_;
  bool ending_ = false;  // guarded by the mutex
  std::thread thread_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_LISTENER_WATCH_H_
