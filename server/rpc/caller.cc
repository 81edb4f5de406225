// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/caller.h"

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

}  // namespace phasor::rpc
