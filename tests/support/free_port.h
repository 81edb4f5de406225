// SPDX-License-Identifier: Apache-2.0
// A TCP port of 127.0.0.1 for a server that must know its port before it starts, or starts twice.
#ifndef PHASOR_TESTS_SUPPORT_FREE_PORT_H_
#define PHASOR_TESTS_SUPPORT_FREE_PORT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <random>

#include "server/base/file_descriptor.h"

namespace phasor::testing {

// Nobody has it now, nor gets it without asking for it: Linux takes the ports of connections, and
// of `bind` to port 0, from 32768 on.
inline int FreePort() {
  std::random_device random;
  std::uniform_int_distribution<uint16_t> ports(20000, 32767);
  while (true) {
    const uint16_t port = ports(random);
    const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return port;
  }
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_FREE_PORT_H_
