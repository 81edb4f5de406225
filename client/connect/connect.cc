// SPDX-License-Identifier: Apache-2.0
// Chooses the connection for a target. It is apart from client.cc, so that programs and tests with
// a connection of their own need no gRPC.
#include "client/client.h"
#include "client/grpc/grpc_connection.h"
#include "client/inproc/inproc_connection.h"
#include "kernels/base/status_macros.h"

namespace phasor {

absl::StatusOr<Client> Client::Connect(std::string_view target, const ClientOptions& options) {
  PHASOR_RETURN_IF_ERROR(options.Validate());
  PHASOR_ASSIGN_OR_RETURN(std::shared_ptr<Connection> connection,
                          target == "inproc:"
                              ? client_internal::MakeInprocConnection(options)
                              : client_internal::MakeGrpcConnection(target, options));
  return Client(std::move(connection), options);
}

}  // namespace phasor
