// SPDX-License-Identifier: Apache-2.0
#include "server/net/delivery.h"

#include <linux/sockios.h>
#include <linux/tcp.h>  // tcp_info with tcpi_bytes_acked; conflicts with netinet/tcp.h
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <optional>

namespace phasor {
namespace {

constexpr int kClosed = 7;  // TCP_CLOSE of the kernel

// nullopt: no TCP socket, or a broken connection.
std::optional<uint64_t> Acknowledged(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  if (info.tcpi_state == kClosed) return std::nullopt;
  return info.tcpi_bytes_acked;
}

// Written and not acknowledged.
uint64_t Queued(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? bytes : 0;
}

}  // namespace

// Bytes that are acknowledged between the two calls count twice. Then the end is never reached if
// nothing else is written, but the queue becomes empty.
Delivery::Delivery(int fd) : fd_(fd) {
  const uint64_t queued = Queued(fd);
  if (queued > 0) end_ = queued + Acknowledged(fd).value_or(0);
}

bool Delivery::done() const {
  const std::optional<uint64_t> acknowledged = Acknowledged(fd_);
  return !acknowledged.has_value() || *acknowledged >= end_ || Queued(fd_) == 0;
}

}  // namespace phasor
