// SPDX-License-Identifier: Apache-2.0
// The connection to a server over gRPC: TCP or a Unix socket.
#ifndef PHASOR_CLIENT_GRPC_GRPC_CONNECTION_H_
#define PHASOR_CLIENT_GRPC_GRPC_CONNECTION_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "client/options.h"

namespace phasor::client_internal {

class Timer;

// Does not wait for the server. `timer` waits between attempts and must outlive the calls; nullptr:
// real time.
// INVALID_ARGUMENT: unknown kind of target, or a file or token that cannot be used. UNIMPLEMENTED:
// this library was built without gRPC. FAILED_PRECONDITION: this process is a fork() of one that
// connected.
absl::StatusOr<std::shared_ptr<Connection>> MakeGrpcConnection(std::string_view target,
                                                               const ClientOptions& options,
                                                               Timer* timer = nullptr);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_GRPC_CONNECTION_H_
