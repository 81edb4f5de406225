// SPDX-License-Identifier: Apache-2.0
// Makes the gRPC servers of a process, with limits, plug-ins, and connections from our own accept
// loop.
#ifndef PHASOR_SERVER_GRPC_GRPC_SERVER_H_
#define PHASOR_SERVER_GRPC_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/grpc_version.h"
#include "server/config/options.h"
#include "server/grpc/call_observer.h"
#include "server/grpc/open_calls.h"
#include "server/net/listener.h"

#if !PHASOR_GRPC_BOUNDS_STREAMS
#include "server/grpc/stream_watch.h"
#endif

namespace phasor {

inline constexpr char kReflectionPlugin[] = "proto_server_reflection";
inline constexpr char kChannelzPlugin[] = "channelz_service";

// The parts of one server. Everything that is pointed to must outlive the server.
struct GrpcServerParts {
  std::vector<grpc::Service*> services;
  std::string plugin;  // one of the plug-ins above; empty: none
  int64_t max_request_bytes = 0;
  int64_t max_response_bytes = 0;
  grpc::ResourceQuota* quota = nullptr;
  std::vector<rpc::CallObserver*> observers;
  std::unique_ptr<grpc::ContextAllocator> contexts;  // may be nullptr
  std::vector<std::string> finished;                 // as of MakeCallInterceptors
  std::shared_ptr<grpc::ServerCredentials> tls;      // for TCP; nullptr: plaintext
};

// A running server and the limits of its calls.
struct LimitedServer {
  std::unique_ptr<rpc::OpenCalls> calls;
  std::unique_ptr<grpc::Server> server;
#if !PHASOR_GRPC_BOUNDS_STREAMS
  std::unique_ptr<StreamWatch> watch;
#endif
};

// From now on, destroying a server does not shut gRPC down, which would join threads that may be in
// a poll of 10 s. For processes that end soon after their server.
void KeepGrpcUntilExit();

// The only way to make a gRPC server here. It has all limits of gRPC (`quota` limits the memory of
// its connections), and our own limits on calls (rpc::OpenCalls, StreamWatch). The server gets the
// connections that `listener` accepts from now on; the listener must be stopped before the server
// is destroyed. Unix sockets are always plaintext, because the permissions of their files guard
// them. INTERNAL: gRPC failed.
absl::StatusOr<LimitedServer> StartGrpcServer(const ServerOptions& options, GrpcServerParts parts,
                                              Listener* listener);

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_GRPC_SERVER_H_
