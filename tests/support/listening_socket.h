// SPDX-License-Identifier: Apache-2.0
// Finds and breaks listening sockets of this process, which no code of the server does.
#ifndef PHASOR_TESTS_SUPPORT_LISTENING_SOCKET_H_
#define PHASOR_TESTS_SUPPORT_LISTENING_SOCKET_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <string>

namespace phasor::testing {

// Ends the listening of this process at "127.0.0.1:port"; its descriptor stays. False if there is
// no such socket.
inline bool BreakListener(const std::string& address) {
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_in bound = {};
    size = sizeof(bound);
    getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
    if (bound.sin_family == AF_INET && ntohs(bound.sin_port) == port) {
      return shutdown(fd, SHUT_RDWR) == 0;
    }
  }
  return false;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_LISTENING_SOCKET_H_
