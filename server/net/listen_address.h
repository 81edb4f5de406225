// SPDX-License-Identifier: Apache-2.0
// Addresses that a server listens on, in the form that users write.
#ifndef PHASOR_SERVER_NET_LISTEN_ADDRESS_H_
#define PHASOR_SERVER_NET_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace phasor {

// A parsed "unix:/path", "host:port" or "[v6]:port".
struct ListenAddress {
  std::string unix_path;  // if not empty, a Unix socket; host and port are unused
  std::string host;       // a name or an address without brackets
  int port = 0;           // 0: the system chooses
};

// Parses `text`, the value of `option`. INVALID_ARGUMENT "<option>: ...": not an address.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text,
                                                 const std::string& option = "listen");

// Whether only this host can reach the address: a Unix socket, localhost, 127.0.0.0/8 or ::1.
bool IsOfThisHost(const ListenAddress& address);

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_LISTEN_ADDRESS_H_
