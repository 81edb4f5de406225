// SPDX-License-Identifier: Apache-2.0
// Chooses the connection for a target. Apart from client.cc so that programs and tests that bring
// their own connection need no gRPC.
#include "client/client.h"
#include "client/internal/grpc_connection.h"
#include "client/internal/inproc_connection.h"
#include "kernels/status_macros.h"

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
