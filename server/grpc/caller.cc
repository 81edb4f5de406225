// SPDX-License-Identifier: Apache-2.0
// Reads a caller's deadline and host from what gRPC knows.
#include "server/grpc/caller.h"

#include <algorithm>
#include <functional>

#include "kernels/base/steady_time.h"

namespace phasor::rpc {

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  // Not context.deadline(): a time_point of nanoseconds ends in the year 2262.
  const gpr_timespec deadline = gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_REALTIME);
  if (gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_REALTIME)) == 0) {
    return absl::InfiniteFuture();
  }
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(GPR_CLOCK_REALTIME));
  return SteadyNow() + absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

uint64_t ClientOf(const grpc::CallbackServerContext& context) {
  return ClientOfPeer(context.peer());
}

uint64_t ClientOfPeer(std::string_view peer) {
  return std::hash<std::string_view>()(peer.substr(0, peer.rfind(':')));
}

std::string AddressOfPeer(std::string_view peer) {
  const size_t port = peer.rfind(':');
  if (peer.starts_with("ipv4:")) return std::string(peer.substr(5));
  if (!peer.starts_with("ipv6:") || port == 4) return "";
  // gRPC writes "ipv6:%5Bfe80::1%25eth0%5D:4711", with or without the escapes.
  std::string_view host = peer.substr(5, port - 5);
  for (const std::string_view bracket : {"%5B", "["}) {
    if (host.starts_with(bracket)) host.remove_prefix(bracket.size());
  }
  host = host.substr(0, host.find_first_of("%]"));
  return std::string(host) + std::string(peer.substr(port));
}

bool IsRemotePeer(std::string_view peer) {
  static constexpr std::string_view kLocal[] = {"unix:", "ipv4:127.",
                                                "ipv6:%5B::1%5D:", "ipv6:[::1]:"};
  return std::none_of(std::begin(kLocal), std::end(kLocal),
                      [&](std::string_view prefix) { return peer.starts_with(prefix); });
}

}  // namespace phasor::rpc
