// SPDX-License-Identifier: Apache-2.0
// Parses addresses. Names are resolved later, when the server listens.
#include "server/net/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "kernels/base/invalid.h"

namespace phasor {
namespace {

constexpr char kUnixPrefix[] = "unix:";
constexpr size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;

constexpr char kAccepted[] = "; accepted are host:port, [v6]:port and unix:/path";

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text,
                                                 const std::string& option) {
  const auto refuse = [&](const std::string& problem) {
    return InvalidAt(
        option, "'", text, "' ", problem,
        option == "metrics-listen" ? "; accepted are host:port and [v6]:port" : kAccepted);
  };
  ListenAddress address;
  if (absl::StartsWith(text, kUnixPrefix)) {
    address.unix_path = text.substr(sizeof(kUnixPrefix) - 1);
    if (address.unix_path.empty() || address.unix_path[0] != '/') {
      return refuse("has no absolute path");
    }
    if (address.unix_path.size() > kMaxUnixPath) {
      return InvalidAt(option, address.unix_path, " is longer than ", kMaxUnixPath,
                       " bytes, the system's limit for Unix sockets; use a shorter path");
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return refuse("has no port");
  address.host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  const bool digits = port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &address.port) || address.port > 65535) {
    return refuse("has no port in [0, 65535]");
  }
  const bool bracketed = absl::StartsWith(address.host, "[") && absl::EndsWith(address.host, "]");
  if (bracketed) {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    return refuse("has a v6 address without brackets");
  }
  if (address.host.empty()) return refuse("has no host");
  return address;
}

bool IsOfThisHost(const ListenAddress& address) {
  if (!address.unix_path.empty() || address.host == "localhost") return true;
  in_addr v4 = {};
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6 = {};
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace phasor
