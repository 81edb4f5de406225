// SPDX-License-Identifier: Apache-2.0
// What the gRPC servers of a process have in common: limits, plug-ins, and connections of our own
// accept loop.
#ifndef PHASOR_SERVER_GRPC_GRPC_SERVER_H_
#define PHASOR_SERVER_GRPC_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/options.h"
#include "server/grpc/call_observer.h"
#include "server/grpc/open_calls.h"
#include "server/grpc/stream_watch.h"
#include "server/net/listener.h"

namespace phasor {

inline constexpr char kReflectionPlugin[] = "proto_server_reflection";
inline constexpr char kChannelzPlugin[] = "channelz_service";

// What one server has of its own. All that is pointed to must outlive the server.
struct GrpcServerParts {
  std::vector<grpc::Service*> services;
  std::string plugin;  // of gRPC's, see above; empty: none
  int64_t max_request_bytes = 0;
  int64_t max_response_bytes = 0;
  grpc::ResourceQuota* quota = nullptr;
  std::vector<rpc::CallObserver*> observers;
  std::unique_ptr<grpc::ContextAllocator> contexts;  // or nullptr
  bool method_names = false;                         // as rpc::MethodNames, of `contexts`
  std::shared_ptr<grpc::ServerCredentials> tls;      // of TCP; nullptr: plaintext
};

// A running server and the limits of its calls.
struct LimitedServer {
  std::unique_ptr<rpc::OpenCalls> calls;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<StreamWatch> watch;
};

// From now on, no end of a server is the end of gRPC itself, which joins threads that may be in a
// poll of 10 s. For processes that end soon after their server.
void KeepGrpcUntilExit();

// The only way to make a gRPC server here: with every limit that gRPC has (the memory of its
// connections is `quota`), and with our own on calls (rpc::OpenCalls, StreamWatch). The server gets
// the connections that `listener` accepts from now on, which must be stopped before the server is
// destroyed. Unix sockets are always plaintext: permissions of their files guard them. INTERNAL:
// gRPC refused.
absl::StatusOr<LimitedServer> StartGrpcServer(const ServerOptions& options, GrpcServerParts parts,
                                              Listener* listener);

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_GRPC_SERVER_H_
