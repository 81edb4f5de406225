// SPDX-License-Identifier: Apache-2.0
// Notices when a listener no longer takes connections, which nobody inside would hear of.
#ifndef PHASOR_SERVER_LISTENER_WATCH_H_
#define PHASOR_SERVER_LISTENER_WATCH_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"
#include "server/listener.h"

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
  engine::Mutex mu_;
  engine::CondVar ending_changed_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_LISTENER_WATCH_H_
