// SPDX-License-Identifier: Apache-2.0
// Sends the status of a call, and when to retry with UNAVAILABLE.
#include "server/grpc/finish_call.h"

#include "proto/grpc_status.h"
#include "server/grpc/access.h"

namespace phasor::rpc {

void FinishCall(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                const absl::Status& status) {
  if (absl::IsUnavailable(status)) context->AddTrailingMetadata("grpc-retry-pushback-ms", "100");
  reactor->Finish(ToGrpcStatus(status));
}

grpc::ServerUnaryReactor* RefusedReactor(grpc::CallbackServerContext* context) {
  const absl::Status refusal = Refusal(context);
  if (refusal.ok()) return nullptr;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  FinishCall(context, reactor, refusal);
  return reactor;
}

}  // namespace phasor::rpc
