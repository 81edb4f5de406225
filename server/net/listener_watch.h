// SPDX-License-Identifier: Apache-2.0
// Detects that a listener has stopped accepting connections.
#ifndef PHASOR_SERVER_NET_LISTENER_WATCH_H_
#define PHASOR_SERVER_NET_LISTENER_WATCH_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "server/base/stop_signal.h"
#include "server/net/listener.h"

namespace phasor {

// A thread that watches a listener until the destructor.
class ListenerWatch {
 public:
  // Checks once per `period` whether `listener` accepts connections, and calls `changed` on the
  // watch's thread when that changes. At first `listener` must accept them. It must outlive this.
  ListenerWatch(const Listener* listener, std::function<void(bool accepting)> changed,
                absl::Duration period = absl::Seconds(1));
  ~ListenerWatch();

 private:
  void Watch();

  const Listener& listener_;
  const std::function<void(bool)> changed_;
  const absl::Duration period_;
  StopSignal stop_;
  std::thread thread_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_LISTENER_WATCH_H_
