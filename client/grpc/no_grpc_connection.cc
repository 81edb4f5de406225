// SPDX-License-Identifier: Apache-2.0
// Connects to no server: for phasor::inproc, which needs no gRPC.
#include "absl/status/status.h"
#include "client/grpc/grpc_connection.h"
#include "kernels/base/text.h"

namespace phasor::client_internal {

absl::StatusOr<std::shared_ptr<Connection>> MakeGrpcConnection(std::string_view target,
                                                               const ClientOptions&, Timer*) {
  return absl::UnimplementedError(
      StrCat("target: \"", target, "\", this build has no gRPC; must be inproc:"));
}

}  // namespace phasor::client_internal
