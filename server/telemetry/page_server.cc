// SPDX-License-Identifier: Apache-2.0
// A small HTTP server: one thread polls the listening sockets, a wake-up, and a few connections.
// Each connection sends its request, receives its answer, or is about to close, and has a deadline
// for it.
#include "server/telemetry/page_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/net/listen_socket.h"

namespace phasor::telemetry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxRequestBytes = 8192;
constexpr auto kStarvedPause = std::chrono::milliseconds(50);  // while no descriptor is free

Clock::time_point In(absl::Duration time) {
  return Clock::now() + absl::ToChronoNanoseconds(std::min(time, absl::Hours(24)));
}

// Returns the first word of `line`, up to a space, and removes it and the space from `line`.
std::string_view TakeWord(std::string_view* line) {
  const std::string_view word = line->substr(0, line->find(' '));
  line->remove_prefix(std::min(word.size() + 1, line->size()));
  return word;
}

// The value of a header of a request, empty if it has none. `name` is in lower case.
std::string_view HeaderOf(std::string_view request, std::string_view name) {
  for (size_t at = request.find("\r\n"); at != request.npos; at = request.find("\r\n", at)) {
    at += 2;
    const std::string_view line = request.substr(at, request.find("\r\n", at) - at);
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    const bool same = std::equal(name.begin(), name.end(), line.begin(),
                                 [](char a, char b) { return a == (b | 0x20); });
    if (same) return line.substr(name.size() + 1);
  }
  return "";
}

class PollingPageServer final : public PageServer {
 public:
  PollingPageServer(PageServerOptions options, std::vector<ListenSocket> sockets)
      : options_(std::move(options)),
        sockets_(std::move(sockets)),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  ~PollingPageServer() override {
    const uint64_t one = 1;
    const ssize_t written = write(wake_.get(), &one, sizeof(one));
    static_cast<void>(written);  // an eventfd at 0 accepts it
    if (thread_.joinable()) thread_.join();
  }

  bool Run() {
    if (!wake_.valid()) return false;
    thread_ = std::thread([this] { Serve(); });
    return true;
  }

  std::vector<std::string> addresses() const override {
    std::vector<std::string> addresses;
    for (const ListenSocket& socket : sockets_) addresses.push_back(socket.address());
    return addresses;
  }

 private:
  struct Connection {
    FileDescriptor fd;
    Clock::time_point deadline;
    std::string request;  // received so far
    std::string answer;   // empty: the request is incomplete
    size_t sent = 0;      // bytes of the answer

    bool answered() const { return !answer.empty() && sent == answer.size(); }
  };

  void Serve() {
    while (true) {
      std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
      for (const ListenSocket& socket : sockets_) {
        polled.push_back({socket.fd(), static_cast<short>(starved_ ? 0 : POLLIN), 0});
      }
      const size_t first = polled.size();
      for (const Connection& connection : connections_) {
        const bool reads = connection.answer.empty() || connection.answered();
        const short events = reads ? POLLIN : POLLOUT;
        polled.push_back({connection.fd.get(), events, 0});
      }
      poll(polled.data(), polled.size(), Timeout());
      if (polled[0].revents != 0) return;
      starved_ = false;
      for (size_t i = first; i < polled.size(); ++i) {
        if (polled[i].revents != 0) Continue(&connections_[i - first]);
      }
      const Clock::time_point now = Clock::now();
      std::erase_if(connections_, [now](const Connection& connection) {
        return !connection.fd.valid() || connection.deadline <= now;
      });
      for (size_t i = 1; i < first; ++i) {
        if (polled[i].revents != 0) AcceptOn(polled[i].fd);
      }
    }
  }

  // Milliseconds until the next deadline or retry; -1: none.
  int Timeout() const {
    if (starved_) return kStarvedPause.count();
    if (connections_.empty()) return -1;
    const auto next = std::min_element(
        connections_.begin(), connections_.end(),
        [](const Connection& a, const Connection& b) { return a.deadline < b.deadline; });
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next->deadline - Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }

  bool IsFull() const {
    return connections_.size() >= static_cast<size_t>(options_.max_connections);
  }
  void DropClosed() {
    std::erase_if(connections_, [](const Connection& c) { return !c.fd.valid(); });
  }

  // Accepts at most as many connections as there is room for, so that they get their turn.
  void AcceptOn(int listening_fd) {
    for (int i = 0; i < options_.max_connections; ++i) {
      FileDescriptor fd(accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        if (errno == ECONNABORTED || errno == EINTR) continue;
        DropClosed();
        starved_ = connections_.empty();
        if (!starved_) connections_.erase(connections_.begin());  // frees a descriptor
        return;
      }
      if (IsFull()) DropClosed();
      if (IsFull()) connections_.erase(connections_.begin());
      connections_.push_back({std::move(fd), In(options_.request_time), "", "", 0});
      Continue(&connections_.back());
    }
  }

  // Reads or writes as much as possible. Closes the descriptor of a connection that is done.
  void Continue(Connection* connection) {
    if (connection->answered()) return Discard(connection);
    if (connection->answer.empty()) Read(connection);
    if (!connection->answer.empty()) Write(connection);
  }

  void Read(Connection* connection) {
    char part[2048];
    while (connection->answer.empty()) {
      const ssize_t got = recv(connection->fd.get(), part, sizeof(part), 0);
      if (got <= 0) {
        const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        if (!later) connection->fd.Close();
        return;
      }
      connection->request.append(part, static_cast<size_t>(got));
      if (connection->request.find("\r\n\r\n") != std::string::npos) {
        connection->answer = AnswerTo(connection->request);
      } else if (connection->request.size() > kMaxRequestBytes) {
        connection->answer = Answer("431 Request Header Fields Too Large", "too large\n", true);
      }
    }
    connection->deadline = In(options_.answer_time);
  }

  void Write(Connection* connection) {
    std::string_view rest = connection->answer;
    rest.remove_prefix(connection->sent);
    while (!rest.empty()) {
      const ssize_t sent = send(connection->fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent < 0) {
        const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        if (!later) connection->fd.Close();
        return;
      }
      connection->sent += static_cast<size_t>(sent);
      rest.remove_prefix(static_cast<size_t>(sent));
    }
    shutdown(connection->fd.get(), SHUT_WR);
  }

  // Reads on until the peer closes. To close before would reset the connection of a peer that still
  // sends, and might take the answer from it.
  void Discard(Connection* connection) {
    char part[2048];
    const ssize_t got = recv(connection->fd.get(), part, sizeof(part), 0);
    const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (got <= 0 && !later) connection->fd.Close();
  }

  // `request` must hold at least one line.
  std::string AnswerTo(std::string_view request) const {
    std::string_view line = request.substr(0, request.find("\r\n"));
    const std::string_view method = TakeWord(&line);
    const std::string_view path = TakeWord(&line);
    if (!line.starts_with("HTTP/1.")) return Answer("400 Bad Request", "not HTTP/1\n", true);
    const bool head = method == "HEAD";
    if (!head && method != "GET") return Answer("405 Method Not Allowed", "GET only\n", true);
    if (path.substr(0, path.find('?')) != options_.path) {
      return Answer("404 Not Found", StrCat("only ", options_.path, " is here\n"), !head);
    }
    const Page page = options_.page(HeaderOf(request, "accept"));
    return Answer("200 OK", page.body, !head, page.content_type);
  }

  static std::string Answer(std::string_view status, std::string_view body, bool with_body,
                            std::string_view type = "text/plain") {
    return StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                  "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n",
                  with_body ? body : "");
  }

  const PageServerOptions options_;
  const std::vector<ListenSocket> sockets_;
  const FileDescriptor wake_;
  std::thread thread_;

  // Used by the thread only.
  std::vector<Connection> connections_;  // oldest first
  bool starved_ = false;                 // no descriptor: does not accept for a while
};

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(PageServerOptions options) {
  PHASOR_ASSIGN_OR_RETURN(std::vector<ListenSocket> sockets, Listen(options.addresses));
  auto server = std::make_unique<PollingPageServer>(std::move(options), std::move(sockets));
  if (!server->Run())
    return absl::UnavailableError("listen: no file descriptor left; raise RLIMIT_NOFILE");
  return server;
}

}  // namespace phasor::telemetry
