// SPDX-License-Identifier: Apache-2.0
// Reports and sends the status of a call, and when to retry with UNAVAILABLE.
#include "server/grpc/finish_call.h"

#include "proto/grpc_status.h"
#include "server/grpc/access.h"
#include "server/grpc/call_context.h"

namespace phasor::rpc {
namespace {

// Reports the end of the call. Returns the status to be sent.
grpc::Status EndOf(grpc::CallbackServerContext* context, const absl::Status& status) {
  AddPushback(context, status);
  grpc::Status sent = ToGrpcStatus(status);
  CallContext* const call = CallContext::Of(context);
  if (call != nullptr && call->observed.has_value()) call->observed->End(sent);
  return sent;
}

}  // namespace

void AddPushback(grpc::CallbackServerContext* context, const absl::Status& status) {
  if (absl::IsUnavailable(status)) context->AddTrailingMetadata("grpc-retry-pushback-ms", "100");
}

void FinishCall(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                const absl::Status& status, size_t sent_bytes) {
  CallContext* const call = CallContext::Of(context);
  if (status.ok() && call != nullptr && call->observed.has_value()) {
    call->observed->Sends(static_cast<int64_t>(sent_bytes));
  }
  reactor->Finish(EndOf(context, status));
}

void FinishStream(grpc::CallbackServerContext* context,
                  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* reactor,
                  const absl::Status& status) {
  reactor->Finish(EndOf(context, status));
}

grpc::ServerUnaryReactor* RefusedReactor(grpc::CallbackServerContext* context) {
  const absl::Status refusal = Refusal(context);
  if (refusal.ok()) return nullptr;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  FinishCall(context, reactor, refusal);
  return reactor;
}

}  // namespace phasor::rpc
