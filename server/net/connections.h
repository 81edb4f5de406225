// SPDX-License-Identifier: Apache-2.0
// Connections: names the open connections of a listener.
#ifndef PHASOR_SERVER_NET_CONNECTIONS_H_
#define PHASOR_SERVER_NET_CONNECTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/mutex.h"

namespace phasor {

// The open TCP connections. A connection has a name of its own: its peer's address and a number,
// because the next connection may come from the same address and port. Connections over Unix
// sockets have no names, because gRPC does not tell them apart. Threads: any.
class Connections {
 public:
  using Closed = std::function<void(const std::string& name)>;

  // Adds a function that is called without a lock when a connection has closed. To be called before
  // the first connection opens.
  void WhenClosed(Closed closed) { closed_.push_back(std::move(closed)); }

  // A connection from `address`, in the form of PeerAddress, has opened. An older one from the same
  // address can only be dead, and closes.
  void Open(const std::string& address);
  // The connection from `address` has closed. Nothing happens if another one took its place.
  void Close(const std::string& address, uint64_t number);

  // The number of the open connection from `address`; 0: there is none.
  uint64_t NumberOf(const std::string& address) const;
  // Its name; the name of a closed one if there is none.
  std::string NameOf(const std::string& address) const;
  // Whether this connection is still open.
  bool IsOpen(const std::string& name) const;

 private:
  void Tell(const std::string& address, uint64_t number) const;

  std::vector<Closed> closed_;
  mutable Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, uint64_t> open_ ABSL_GUARDED_BY(mu_);  // numbers by address
};

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_CONNECTIONS_H_
