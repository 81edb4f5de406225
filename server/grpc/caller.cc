// SPDX-License-Identifier: Apache-2.0
// Reads a caller's deadline and host from what gRPC knows.
#include "server/grpc/caller.h"

#include <algorithm>
#include <chrono>
#include <functional>

namespace phasor::rpc {

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return absl::FromChrono(deadline);
}

uint64_t ClientOf(const grpc::CallbackServerContext& context) {
  return ClientOfPeer(context.peer());
}

uint64_t ClientOfPeer(std::string_view peer) {
  return std::hash<std::string_view>()(peer.substr(0, peer.rfind(':')));
}

bool IsRemotePeer(std::string_view peer) {
  static constexpr std::string_view kLocal[] = {"unix:", "ipv4:127.",
                                                "ipv6:%5B::1%5D:", "ipv6:[::1]:"};
  return std::none_of(std::begin(kLocal), std::end(kLocal),
                      [&](std::string_view prefix) { return peer.starts_with(prefix); });
}

}  // namespace phasor::rpc
