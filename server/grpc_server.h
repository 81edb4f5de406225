// SPDX-License-Identifier: Apache-2.0
// What the gRPC servers of a process have in common: plug-ins, limits, and connections of our own
// accept loop.
#ifndef PHASOR_SERVER_GRPC_SERVER_H_
#define PHASOR_SERVER_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "server/listener.h"
#include "server/options.h"

namespace phasor {

inline constexpr char kReflectionPlugin[] = "proto_server_reflection";
inline constexpr char kChannelzPlugin[] = "channelz_service";

// Plug-ins and gRPC's log belong to the process. Idempotent; before the first builder.
void SetProcessWideGrpcOptions();

// From now on, no end of a server is the end of gRPC itself, which joins threads that may be in a
// poll of 10 s. For processes that end soon after their server.
void KeepGrpcUntilExit();

// Takes all plug-ins but these out of one server.
void KeepPlugins(grpc::ServerBuilder* builder, std::vector<std::string> names);

// Sets every limit that gRPC has but the memory of all connections.
void SetLimits(const ServerOptions& options, grpc::ServerBuilder* builder);

// Builds the server and gives it the connections that `listener` accepts from now on, which must be
// stopped before the server is destroyed. `tls`: of TCP; nullptr: plaintext. Unix sockets are
// always plaintext: permissions of their files guard them. nullptr: gRPC refused.
std::unique_ptr<grpc::Server> ServeConnections(grpc::ServerBuilder* builder, Listener* listener,
                                               const std::shared_ptr<grpc::ServerCredentials>& tls);

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_SERVER_H_
