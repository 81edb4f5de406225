// SPDX-License-Identifier: Apache-2.0
// Plain client sockets for tests of listeners.
#ifndef PHASOR_TESTS_SUPPORT_SOCKET_CLIENT_H_
#define PHASOR_TESTS_SUPPORT_SOCKET_CLIENT_H_

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "server/net/listen_socket.h"

namespace phasor {

// Connects to "127.0.0.1:port" or "unix:/path", with a new socket unless one is given; not valid
// when refused.
inline FileDescriptor ConnectTo(const std::string& address, FileDescriptor fd = {}) {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  if (address.rfind("unix:", 0) == 0) {
    auto* local = reinterpret_cast<sockaddr_un*>(&storage);
    local->sun_family = AF_UNIX;
    std::strncpy(local->sun_path, address.c_str() + 5, sizeof(local->sun_path) - 1);
    length = sizeof(*local);
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    v4->sin_family = AF_INET;
    v4->sin_port =
        htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    inet_pton(AF_INET, "127.0.0.1", &v4->sin_addr);
    length = sizeof(*v4);
  }
  if (!fd.valid()) fd = FileDescriptor(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fd;
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) fd.Close();
  return fd;
}

// Reads until the other side has closed. False when it does not within 30 s.
inline bool WaitForClose(int fd) {
  char ignored[4096];
  while (true) {
    pollfd readable = {fd, POLLIN, 0};
    if (poll(&readable, 1, 30000) != 1) return false;
    if (read(fd, ignored, sizeof(ignored)) <= 0) return true;
  }
}

// A socket for ConnectTo whose system takes few bytes that are not read: far fewer than the other
// side queues.
inline FileDescriptor SocketThatHoldsLittle() {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int bytes = 4096;
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  return fd;
}

// Writes zeros to a non-blocking socket until it takes no more. Returns how many it took.
inline int64_t WriteUntilFull(int fd) {
  static const char zeros[65536] = {};
  int64_t taken = 0;
  while (true) {
    const ssize_t bytes = send(fd, zeros, sizeof(zeros), MSG_NOSIGNAL);
    if (bytes <= 0) return taken;
    taken += bytes;
  }
}

// Reads `bytes` bytes, or fewer if the connection ends before. Returns how many it read.
inline int64_t ReadBytes(int fd, int64_t bytes) {
  char ignored[65536];
  int64_t count = 0;
  while (count < bytes) {
    const ssize_t more = read(fd, ignored, std::min<int64_t>(sizeof(ignored), bytes - count));
    if (more <= 0) break;
    count += more;
  }
  return count;
}

}  // namespace phasor

#endif  // PHASOR_TESTS_SUPPORT_SOCKET_CLIENT_H_
