// SPDX-License-Identifier: Apache-2.0
// Addresses that a server listens on, as users write them.
#ifndef PHASOR_SERVER_NET_LISTEN_ADDRESS_H_
#define PHASOR_SERVER_NET_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace phasor {

// "unix:/path", "host:port" or "[v6]:port".
struct ListenAddress {
  std::string unix_path;  // not empty: a Unix socket, host and port are unused
  std::string host;       // a name or an address without brackets
  int port = 0;           // 0: the system chooses
};

// `option`: which the text is a value of. INVALID_ARGUMENT "<option>: ...": not an address.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text,
                                                 const std::string& option = "listen");

// Whether only this host reaches it: a Unix socket, localhost, 127.0.0.0/8, ::1.
bool IsOfThisHost(const ListenAddress& address);

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_LISTEN_ADDRESS_H_
