// SPDX-License-Identifier: Apache-2.0
// What gRPC knows about the caller of a call.
#ifndef PHASOR_SERVER_GRPC_CALLER_H_
#define PHASOR_SERVER_GRPC_CALLER_H_

#include <grpcpp/server_context.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace phasor::rpc {

// By SteadyNow. Infinite if the caller set no deadline.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context);

// The caller's host as a number, for turns in the engine's queue: a host is one client, however
// many connections it has. All callers on Unix sockets are one client.
uint64_t ClientOf(const grpc::CallbackServerContext& context);
// The same for a peer as gRPC writes it, e.g. "ipv4:10.0.0.1:4711".
uint64_t ClientOfPeer(std::string_view peer);
// The address of a TCP peer as gRPC writes it, in the form of PeerAddress: "10.0.0.1:4711".
std::string AddressOfPeer(std::string_view peer);
// Whether this peer is on another host: neither on a Unix socket nor at a loopback address.
bool IsRemotePeer(std::string_view peer);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALLER_H_
