// SPDX-License-Identifier: Apache-2.0
// What gRPC knows of who makes a call.
#ifndef PHASOR_SERVER_GRPC_CALLER_H_
#define PHASOR_SERVER_GRPC_CALLER_H_

#include <grpcpp/server_context.h>

#include <cstdint>
#include <string_view>

#include "absl/time/time.h"

namespace phasor::rpc {

// Infinite when the caller has none.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context);

// The caller's host as a number, for turns in the engine's queue: one client however many
// connections it has. All callers over Unix sockets are one.
uint64_t ClientOf(const grpc::CallbackServerContext& context);
// The same of what gRPC calls a peer, e.g. "ipv4:10.0.0.1:4711".
uint64_t ClientOfPeer(std::string_view peer);
// Whether such a peer is not on this host: neither a Unix socket nor a loopback address.
bool IsRemotePeer(std::string_view peer);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALLER_H_
