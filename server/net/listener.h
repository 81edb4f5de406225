// SPDX-License-Identifier: Apache-2.0
// Accepts connections and hands them on. The listener of gRPC 1.51 stops for good if accept fails
// for lack of file descriptors. This one recovers, and it limits connections.
#ifndef PHASOR_SERVER_NET_LISTENER_H_
#define PHASOR_SERVER_NET_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/net/connections.h"
#include "server/net/listen_socket.h"

namespace phasor {

// Addresses and limits of a listener.
struct ListenerOptions {
  std::vector<std::string> addresses;  // in the form of ParseListenAddress
  int max_connections = 1024;
  int max_connections_per_peer = 256;             // per IP address; Unix sockets: per user
  bool closes_oldest = false;                     // a connection too many takes its place
  SocketAccess access = {};                       // to Unix sockets
  absl::Duration stuck_after = absl::Seconds(5);  // longest turn of a live thread; see accepting
  // Sockets that systemd kept while the process was replaced, and where to ask it to do so again
  // (server/net/systemd.h). Those at none of the addresses are closed.
  std::vector<int> passed = {};
  std::string notify_socket = {};
};

// Counts since the start.
struct ListenerStats {
  int64_t accepted = 0;
  int64_t refused = 0;      // over a limit and closed at once
  int64_t starved = 0;      // accepts that failed for lack of descriptors or memory
  int64_t connections = 0;  // open now
};

// The accept loop of a server. Owns its sockets, one thread, and the files of Unix sockets, which
// it removes at the end. Threads: any thread may call any method.
class Listener {
 public:
  // Takes over a connected, non-blocking socket. Called on the listener's thread.
  using Connected = std::function<void(int listening_fd, int fd)>;

  // Binds the addresses. Connections wait until Start. INVALID_ARGUMENT: not an address.
  // UNAVAILABLE: an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const ListenerOptions& options);
  virtual ~Listener() = default;

  // Starts to accept. To be called once.
  virtual void Start(Connected connected) = 0;
  // Stops accepting and closes the listening sockets. `connected` does not run afterwards. May be
  // called again.
  virtual void Stop() = 0;
  // After Stop: shuts down each connection that was handed on, once what was written to it before
  // the call has arrived (server/net/delivery.h). Shuts down the rest when `time` is over. Returns
  // whether everything arrived.
  virtual bool HangUp(absl::Duration time) = 0;
  // Shuts down the connection to `peer`, in the form of PeerAddress, if there is one.
  virtual void HangUpOn(const std::string& peer) = 0;

  // The open connections, before they are handed on and until they are shut down.
  virtual Connections& connections() = 0;

  // Sets new limits, for connections that arrive from now on.
  virtual void SetCaps(int max_connections, int max_connections_per_peer) = 0;

  // Bound addresses in the form that clients use, with the real ports.
  virtual std::vector<std::string> addresses() const = 0;
  virtual ListenerStats stats() const = 0;
  // Whether the listener accepts connections: its thread makes progress and all sockets listen.
  // False before Start and after Stop.
  virtual bool accepting() const = 0;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_LISTENER_H_
