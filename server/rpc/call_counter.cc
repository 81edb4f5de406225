// SPDX-License-Identifier: Apache-2.0
// gRPC asks for a context when a request has arrived and gives it back when the answer has been
// written.
#include "server/rpc/call_counter.h"

#include "server/rpc/call_context.h"

namespace phasor::rpc {

absl::Status Draining() { return absl::UnavailableError("server: draining, try another one"); }

void CallCounter::StartDraining() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

bool CallCounter::WaitForEarlyCalls(absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithDeadline(absl::Condition(this, &CallCounter::NoEarlyCalls), deadline);
}

grpc::CallbackServerContext* CallCounter::NewCallbackServerContext() {
  absl::MutexLock lock(&mu_);
  if (!draining_) ++early_calls_;
  return new CallContext(draining_, access_);
}

void CallCounter::Release(grpc::CallbackServerContext* context) {
  CallContext* const call = CallContext::Of(context);
  if (call == nullptr) return;  // of a method that there is not: gRPC made it, and will delete it
  if (!call->late) {
    absl::MutexLock lock(&mu_);
    --early_calls_;
  }
  delete call;
}

}  // namespace phasor::rpc
