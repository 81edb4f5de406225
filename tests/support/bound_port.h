// SPDX-License-Identifier: Apache-2.0
// A TCP port of 127.0.0.1 that is reserved, and answers only after listen() on its socket.
#ifndef PHASOR_TESTS_SUPPORT_BOUND_PORT_H_
#define PHASOR_TESTS_SUPPORT_BOUND_PORT_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace phasor::testing {

// Threads: none.
class BoundPort {
 public:
  BoundPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, any, size), 0);
    EXPECT_EQ(getsockname(socket_, any, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~BoundPort() { close(socket_); }
  BoundPort(const BoundPort&) = delete;
  BoundPort& operator=(const BoundPort&) = delete;

  int socket() const { return socket_; }
  int port() const { return port_; }

 private:
  const int socket_;
  int port_ = 0;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_BOUND_PORT_H_
