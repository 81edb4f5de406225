// SPDX-License-Identifier: Apache-2.0
// Fetches a metrics page over HTTP/1.0, in which the server ends the answer by closing the
// connection.
#include "client/cli/metrics_fetch.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"

namespace phasor::cli {
namespace {

constexpr char kHint[] = "; start the server with --metrics-listen";
constexpr size_t kMaxHeaderBytes = 65536;

absl::Status Unavailable(const std::string& why) { return absl::UnavailableError(why); }

std::string Reason(int error) {
  std::string reason = strerror(error);
  if (!reason.empty()) reason[0] = absl::ascii_tolower(reason[0]);
  return reason;
}

// A TCP connection. All its steps end at the deadline. Errors hold only the reason.
class Connection {
 public:
  explicit Connection(absl::Time deadline) : deadline_(deadline) {}
  ~Connection() { Close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Connects to the first address that accepts. The error is that of the last address.
  absl::Status Connect(const MetricsUrl& url) {
    const addrinfo hints = {.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    addrinfo* found = nullptr;
    const int error =
        getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
    if (error != 0) return Unavailable(gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
    absl::Status status = Unavailable("no address");
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      status = ConnectTo(*a);
      if (status.ok()) return status;
    }
    return status;
  }

  absl::Status Send(std::string_view text) {
    while (!text.empty()) {
      PHASOR_RETURN_IF_ERROR(Await(POLLOUT));
      const ssize_t sent = send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return Unavailable(Reason(errno));
      if (sent > 0) text.remove_prefix(static_cast<size_t>(sent));
    }
    return absl::OkStatus();
  }

  // Reads until the server closes the connection. Fails if that is more than `most` bytes.
  absl::StatusOr<std::string> ReceiveAll(size_t most) {
    std::string all;
    char bytes[65536];
    for (;;) {
      PHASOR_RETURN_IF_ERROR(Await(POLLIN));
      const ssize_t size = recv(socket_, bytes, sizeof(bytes), 0);
      if (size < 0 && errno != EAGAIN && errno != EINTR) return Unavailable(Reason(errno));
      if (size == 0) return all;
      if (size > 0) all.append(bytes, static_cast<size_t>(size));
      if (all.size() > most) return Unavailable("the page is too large");
    }
  }

 private:
  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  absl::Status ConnectTo(const addrinfo& address) {
    Close();
    socket_ = socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                     address.ai_protocol);
    if (socket_ < 0) return Unavailable(Reason(errno));
    if (connect(socket_, address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
    if (errno != EINPROGRESS) return Unavailable(StrCat(Reason(errno), kHint));
    PHASOR_RETURN_IF_ERROR(Await(POLLOUT));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? absl::OkStatus() : Unavailable(StrCat(Reason(error), kHint));
  }

  absl::Status Await(short events) {
    for (;;) {
      const absl::Duration left = deadline_ - SteadyNow();
      if (left <= absl::ZeroDuration()) return Unavailable("no answer in time");
      const timespec time = absl::ToTimespec(std::min(left, absl::Hours(1)));
      pollfd ready = {.fd = socket_, .events = events};
      if (ppoll(&ready, 1, &time, nullptr) > 0) return absl::OkStatus();
    }
  }

  const absl::Time deadline_;
  int socket_ = -1;
};

// The page in an answer: a status line like "HTTP/1.1 200 OK", header fields, an empty line, the
// page.
absl::StatusOr<std::string> PageOf(const std::string& answer) {
  const size_t header_end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.") || answer.size() < 12 || header_end == std::string::npos) {
    return Unavailable(StrCat("no answer in HTTP", kHint));
  }
  const std::string status = answer.substr(9, 3);
  if (status != "200") {
    const bool number = std::all_of(status.begin(), status.end(), absl::ascii_isdigit);
    return Unavailable(StrCat("HTTP status ", number ? status : "?", "; must be 200"));
  }
  for (size_t line = answer.find("\r\n"); line < header_end; line = answer.find("\r\n", line)) {
    line += 2;
    constexpr std::string_view kLength = "content-length:";
    const std::string field = answer.substr(line, answer.find("\r\n", line) - line);
    uint64_t length = 0;
    if (!absl::StartsWithIgnoreCase(field, absl::string_view(kLength.data(), kLength.size()))) {
      continue;
    }
    if (!absl::SimpleAtoi(field.substr(kLength.size()), &length) ||
        length != answer.size() - header_end - 4) {
      return Unavailable("not all of the page came");
    }
  }
  return answer.substr(header_end + 4);
}

absl::StatusOr<std::string> Fetch(const MetricsUrl& url, absl::Duration timeout) {
  Connection connection(SteadyNow() + timeout);
  PHASOR_RETURN_IF_ERROR(connection.Connect(url));
  PHASOR_RETURN_IF_ERROR(connection.Send(
      StrCat("GET ", url.path, " HTTP/1.0\r\nHost: ", url.HostAndPort(), "\r\n\r\n")));
  PHASOR_ASSIGN_OR_RETURN(const std::string answer,
                          connection.ReceiveAll(kMaxMetricsPageBytes + kMaxHeaderBytes));
  return PageOf(answer);
}

}  // namespace

std::string MetricsUrl::HostAndPort() const {
  const bool brackets = host.find(':') != std::string::npos;
  return StrCat(brackets ? "[" : "", host, brackets ? "]:" : ":", port);
}

std::string MetricsUrl::Text() const { return StrCat("http://", HostAndPort(), path); }

absl::StatusOr<MetricsUrl> ParseMetricsUrl(const std::string& text) {
  const absl::Status wrong =
      InvalidAt("--metrics", "\"", text, "\"; must be host:port or http://host:port/path");
  std::string_view rest = text;
  constexpr std::string_view kScheme = "http://";
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  const size_t path = std::min(rest.find('/'), rest.size());
  const std::string_view address = rest.substr(0, path);
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  std::string_view host = address.substr(0, colon);
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  if (brackets) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!brackets && host.find(':') != std::string_view::npos)) return wrong;
  const std::string_view port = address.substr(colon + 1);
  MetricsUrl url = {.host = std::string(host), .path = std::string(rest.substr(path))};
  const char* const end = port.data() + port.size();
  if (std::from_chars(port.data(), end, url.port).ptr != end || url.port < 1 || url.port > 65535) {
    return wrong;
  }
  if (url.path.empty() || url.path == "/") url.path = "/metrics";
  return url;
}

absl::StatusOr<std::string> FetchMetrics(const MetricsUrl& url, absl::Duration timeout) {
  absl::StatusOr<std::string> page = Fetch(url, timeout);
  if (page.ok()) return page;
  return absl::UnavailableError(StrCat("cannot read ", url.Text(), ": ", page.status().message()));
}

}  // namespace phasor::cli
