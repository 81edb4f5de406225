// SPDX-License-Identifier: Apache-2.0
// The Unix socket over which clients hand their memory to the server. gRPC cannot pass descriptors.
//
// Lines of text, one answer per request:
//   LEASE                one descriptor comes with it    OK <token> <the store's instance>
//   RELEASE <token>      a lease of this connection      OK
//   anything that fails                                  <status code> <message>
// The end of a connection ends its leases, so a client that dies leaves nothing. The owner that
// quotas count is the peer's user.
#ifndef PHASOR_SERVER_MEMORY_LEASE_SOCKET_H_
#define PHASOR_SERVER_MEMORY_LEASE_SOCKET_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "server/memory/lease_store.h"

namespace phasor::memory {

// Connections at a time; more are closed at once.
inline constexpr size_t kMaxLeaseConnections = 256;

// Owns one thread, which serves all connections, and the leases that came over them.
class LeaseSocket {
 public:
  // Serves `listener`, a listening non-blocking Unix socket that stays the caller's. Both must
  // outlive this.
  LeaseSocket(int listener, LeaseStore* store);
  // Closes all connections.
  ~LeaseSocket();
  LeaseSocket(const LeaseSocket&) = delete;
  LeaseSocket& operator=(const LeaseSocket&) = delete;

 private:
  struct Connection {
    std::string owner;
    std::string line;  // received of the next request
    std::set<std::string> tokens;
  };

  void Serve();
  void Accept();
  // Handles what has arrived. False: the connection has ended.
  bool Receive(int fd, Connection& connection);
  std::string Answer(std::string_view line, int descriptor, Connection& connection);
  void Close(int fd);

  const int listener_;
  LeaseStore& store_;
  const int stop_;  // an eventfd, readable when this is to end
  std::map<int, Connection> connections_;
  std::thread thread_;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_LEASE_SOCKET_H_
