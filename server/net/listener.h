// SPDX-License-Identifier: Apache-2.0
// Accepts connections and hands them on. gRPC 1.51's own listener never recovers once accept has
// failed for lack of file descriptors; this one does, and it counts connections.
#ifndef PHASOR_SERVER_NET_LISTENER_H_
#define PHASOR_SERVER_NET_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phasor {

struct ListenerOptions {
  std::vector<std::string> addresses;  // as ParseListenAddress reads them
  int max_connections = 1024;
  int max_connections_per_peer = 256;             // per IP address; Unix sockets: per user
  absl::Duration stuck_after = absl::Seconds(5);  // without a turn of the thread, see accepting
};

struct ListenerStats {
  int64_t accepted = 0;
  int64_t refused = 0;      // over a cap: closed at once
  int64_t starved = 0;      // accepts that failed for lack of descriptors or memory
  int64_t connections = 0;  // open now
};

// Threads: all methods from any thread. Owns its sockets, one thread, and Unix socket files, which
// it removes at the end.
class Listener {
 public:
  // Takes a connected, non-blocking socket and owns it from then on. Called on the listener's
  // thread.
  using Connected = std::function<void(int listening_fd, int fd)>;

  // Binds; connections wait until Start. INVALID_ARGUMENT: an address; UNAVAILABLE: it cannot be
  // bound.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const ListenerOptions& options);
  virtual ~Listener() = default;

  // Starts accepting. Call once.
  virtual void Start(Connected connected) = 0;
  // Stops accepting and closes the listening sockets. No `connected` runs afterwards. Idempotent.
  virtual void Stop() = 0;
  // After Stop: hangs up all connections that were handed on. What was written to them still
  // arrives.
  virtual void HangUp() = 0;
  // Hangs up the connection with this peer, as PeerAddress writes it, if there is one.
  virtual void HangUpOn(const std::string& peer) = 0;

  // New caps, for connections that come from now on.
  virtual void SetCaps(int max_connections, int max_connections_per_peer) = 0;

  // Bound addresses with their real ports, as clients write them.
  virtual std::vector<std::string> addresses() const = 0;
  virtual ListenerStats stats() const = 0;
  // Whether connections are taken: the thread goes round and all sockets listen. Not before Start
  // nor after Stop.
  virtual bool accepting() const = 0;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_LISTENER_H_
