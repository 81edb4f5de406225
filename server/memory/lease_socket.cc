// SPDX-License-Identifier: Apache-2.0
// Serves the lease socket. Requests are quick: each maps memory at most. A connection ends if an
// answer does not fit the socket's buffer.
#include "server/memory/lease_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/invalid.h"
#include "kernels/base/text.h"

namespace phasor::memory {
namespace {

constexpr std::string_view kLease = "LEASE";
constexpr std::string_view kRelease = "RELEASE ";
constexpr size_t kMaxLine = 64;
// Room for the descriptors of one message. More than one is an error.
constexpr size_t kMaxDescriptors = 8;

std::string UserOf(int fd) {
  struct ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "?";
  return StrCat("uid ", peer.uid);
}

// Descriptors of other files than memory that threads are closing, and how many may be: beyond it,
// no more are received.
std::atomic<int> closing{0};
constexpr int kMaxClosing = 16;

// Closes a descriptor that a client sent. Memory waits for nobody. Another file may be of a file
// system that the client runs, which may keep whoever closes it waiting for ever.
void CloseReceived(int fd) {
  if (fcntl(fd, F_GET_SEALS) >= 0) {
    close(fd);
    return;
  }
  closing.fetch_add(1);
  std::thread([fd] {
    // Closing a socket could wait for its peer if the sender has set that, so turn it off.
    const linger none = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    close(fd);
    closing.fetch_sub(1);
  }).detach();
}

// The descriptors that came with a message. Closes them when destroyed.
class Descriptors {
 public:
  ~Descriptors() {
    for (const int fd : fds_) CloseReceived(fd);
  }
  void Take(msghdr& message) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
        fds_.push_back(fd);
      }
    }
  }
  // The descriptor, if there is exactly one; otherwise -1.
  int only() const { return fds_.size() == 1 ? fds_[0] : -1; }

 private:
  std::vector<int> fds_;
};

// Receives bytes into `text`, and descriptors. Returns 0 at the end, and -1 if there are none yet.
ssize_t ReceiveSome(int fd, absl::Span<char> text, Descriptors* descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control;
  iovec part = {text.data(), text.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = closing.load() < kMaxClosing ? control.size() : 0;
  const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n >= 0) descriptors->Take(message);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return 0;
  return n;
}

std::string ErrorLine(const absl::Status& status) {
  return StrCat(absl::StatusCodeToString(status.code()), " ", status.message(), "\n");
}

}  // namespace

LeaseSocket::LeaseSocket(int listener, LeaseStore* store)
    : listener_(listener), store_(*store), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { Serve(); });
}

LeaseSocket::~LeaseSocket() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
  while (!connections_.empty()) Close(connections_.begin()->first);
}

void LeaseSocket::Serve() {
  std::vector<pollfd> polled;
  while (true) {
    polled.assign({{stop_.get(), POLLIN, 0}, {listener_, POLLIN, 0}});
    for (const auto& [fd, connection] : connections_) polled.push_back({fd, POLLIN, 0});
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    for (size_t i = 2; i < polled.size(); ++i) {
      const int fd = polled[i].fd;
      if (polled[i].revents != 0 && !Receive(fd, connections_.at(fd))) Close(fd);
    }
    if (polled[1].revents != 0) Accept();
  }
}

void LeaseSocket::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    // No descriptor is free: wait, because others may soon close theirs.
    if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, 10);
    return;
  }
  if (connections_.size() >= kMaxLeaseConnections) {
    close(fd);
    return;
  }
  connections_[fd].owner = UserOf(fd);
}

bool LeaseSocket::Receive(int fd, Connection& connection) {
  std::array<char, kMaxLine> text;
  const size_t room = kMaxLine - connection.line.size();
  Descriptors descriptors;
  const ssize_t n = ReceiveSome(fd, {text.data(), room}, &descriptors);
  if (n <= 0) return n < 0;
  connection.line.append(text.data(), static_cast<size_t>(n));
  const size_t end = connection.line.find('\n');
  if (end == std::string::npos) return connection.line.size() < kMaxLine;
  // A client must send one request at a time, because a descriptor comes with the last byte of its
  // request.
  if (end + 1 != connection.line.size()) return false;
  const std::string answer =
      Answer(std::string_view(connection.line).substr(0, end), descriptors.only(), connection);
  connection.line.clear();
  return send(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(answer.size());
}

std::string LeaseSocket::Answer(std::string_view line, int descriptor, Connection& connection) {
  if (line == kLease) {
    if (descriptor < 0) {
      return ErrorLine(
          Invalid("LEASE: comes without a descriptor or with several; must come with one"));
    }
    absl::StatusOr<std::string> token = store_.Add(descriptor, connection.owner);
    if (!token.ok()) return ErrorLine(token.status());
    connection.tokens.insert(*token);
    return StrCat("OK ", *token, " ", store_.instance(), "\n");
  }
  if (line.starts_with(kRelease)) {
    const std::string token(line.substr(kRelease.size()));
    if (connection.tokens.erase(token) == 0) {
      return ErrorLine(absl::NotFoundError(
          "RELEASE: no such lease of this connection; must be a token that LEASE gave"));
    }
    store_.Remove(token);
    return "OK\n";
  }
  return ErrorLine(Invalid("request: not known; must be LEASE or RELEASE <token>"));
}

void LeaseSocket::Close(int fd) {
  for (const std::string& token : connections_.at(fd).tokens) store_.Remove(token);
  connections_.erase(fd);
  close(fd);
}

}  // namespace phasor::memory
