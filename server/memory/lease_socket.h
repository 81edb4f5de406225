// SPDX-License-Identifier: Apache-2.0
// LeaseSocket: the Unix socket over which clients pass memory to the server. gRPC cannot pass
// descriptors.
//
// The protocol is lines of text, with one answer for each request:
//   LEASE                with one descriptor             OK <token> <the store's instance>
//   RELEASE <token>      a lease of this connection      OK
//   anything that fails                                  <status code> <message>
// The end of a connection ends its leases, so a client that dies leaves nothing behind. For quotas,
// the owner is the user of the peer.
#ifndef PHASOR_SERVER_MEMORY_LEASE_SOCKET_H_
#define PHASOR_SERVER_MEMORY_LEASE_SOCKET_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "server/base/file_descriptor.h"
#include "server/memory/lease_store.h"

namespace phasor::memory {

// Most connections at a time. Further ones are closed at once.
inline constexpr size_t kMaxLeaseConnections = 256;

// Serves the socket. Owns one thread for all connections, and the leases made over them.
class LeaseSocket {
 public:
  // Serves `listener`, a listening non-blocking Unix socket, which the caller keeps. Both arguments
  // must outlive this.
  LeaseSocket(int listener, LeaseStore* store);
  // Closes all connections.
  ~LeaseSocket();
  LeaseSocket(const LeaseSocket&) = delete;
  LeaseSocket& operator=(const LeaseSocket&) = delete;

 private:
  struct Connection {
    std::string owner;
    std::string line;  // received part of the next request
    std::set<std::string> tokens;
  };

  void Serve();
  void Accept();
  // Handles received bytes. Returns false if the connection has ended.
  bool Receive(int fd, Connection& connection);
  std::string Answer(std::string_view line, int descriptor, Connection& connection);
  void Close(int fd);

  const int listener_;
  LeaseStore& store_;
  const FileDescriptor stop_;  // an eventfd that is readable when the thread must end
  std::map<int, Connection> connections_;
  std::thread thread_;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_LEASE_SOCKET_H_
