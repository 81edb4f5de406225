// SPDX-License-Identifier: Apache-2.0
// How a unary call ends.
#ifndef PHASOR_SERVER_GRPC_FINISH_CALL_H_
#define PHASOR_SERVER_GRPC_FINISH_CALL_H_

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"

namespace phasor::rpc {

// Ends a call; UNAVAILABLE carries when to come back, as trailing metadata.
void FinishCall(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                const absl::Status& status);

// A reactor that has ended the call because of Refusal (server/grpc/access.h), or nullptr: go on.
grpc::ServerUnaryReactor* RefusedReactor(grpc::CallbackServerContext* context);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_FINISH_CALL_H_
