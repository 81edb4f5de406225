// SPDX-License-Identifier: Apache-2.0
// Reports and sends the status of a call, and when to retry with UNAVAILABLE.
#include "server/grpc/finish_call.h"

#include <utility>

#include "proto/grpc_status.h"
#include "server/grpc/access.h"
#include "server/grpc/call_context.h"

namespace phasor::rpc {

void AddPushback(grpc::CallbackServerContext* context, const absl::Status& status) {
  if (absl::IsUnavailable(status)) context->AddTrailingMetadata("grpc-retry-pushback-ms", "100");
}

void FinishCall(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                const absl::Status& status, size_t sent_bytes) {
  AddPushback(context, status);
  grpc::Status sent = ToGrpcStatus(status);
  CallContext* const call = CallContext::Of(context);
  if (call != nullptr && call->observed.has_value()) {
    if (sent.ok()) call->observed->Sends(static_cast<int64_t>(sent_bytes));
    call->observed->End(sent);
  }
  reactor->Finish(std::move(sent));
}

grpc::ServerUnaryReactor* RefusedReactor(grpc::CallbackServerContext* context) {
  const absl::Status refusal = Refusal(context);
  if (refusal.ok()) return nullptr;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  FinishCall(context, reactor, refusal);
  return reactor;
}

}  // namespace phasor::rpc
