// SPDX-License-Identifier: Apache-2.0
// Counts calls. gRPC asks for a context when a request has arrived, and returns it when the answer
// was written.
#include "server/grpc/call_counter.h"

#include <atomic>

#include "kernels/base/steady_time.h"
#include "server/grpc/call_context.h"

namespace phasor::rpc {

absl::Status Draining() { return absl::UnavailableError("server: draining; try another one"); }

void CallCounter::StartDraining() {
  MutexLock lock(&mu_);
  draining_ = true;
}

bool CallCounter::WaitForEarlyCalls(absl::Duration time) {
  const absl::Time until = SteadyNow() + time;
  MutexLock lock(&mu_);
  while (early_calls_ > 0 && SteadyNow() < until) {
    early_calls_left_.WaitFor(&mu_, until - SteadyNow());
  }
  return early_calls_ == 0;
}

void CallCounter::NoteReceived(grpc::CallbackServerContext* context, int64_t bytes) {
  CallContext* const counted = CallContext::Of(context);
  if (counted == nullptr) return;
  int64_t nothing = CallContext::kNothingNoted;
  counted->received_bytes.compare_exchange_strong(nothing, 0, std::memory_order_relaxed);
  counted->received_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void CallCounter::NoteMessage(grpc::CallbackServerContext* context, int64_t bytes) {
  NoteReceived(context, bytes);
  CallContext* const call = CallContext::Of(context);
  if (call != nullptr && call->observed.has_value()) call->observed->RefuseCompressed();
}

std::optional<int64_t> CallCounter::ReceivedBytes(const grpc::ServerContextBase& context) {
  const CallContext* const counted = CallContext::Of(&context);
  if (counted == nullptr) return std::nullopt;
  const int64_t bytes = counted->received_bytes.load(std::memory_order_relaxed);
  if (bytes == CallContext::kNothingNoted) return std::nullopt;
  return bytes;
}

void CallCounter::NotePhases(grpc::CallbackServerContext* context, const engine::Phases& phases) {
  CallContext* const call = CallContext::Of(context);
  if (call != nullptr) call->phases = phases;
}

std::shared_ptr<StreamObserver> CallCounter::ObserverOf(grpc::CallbackServerContext* context) {
  const CallContext* const call = CallContext::Of(context);
  return call == nullptr ? nullptr : call->stream;
}

void CallCounter::NoteAnswer(grpc::CallbackServerContext* context, int64_t bytes) {
  CallContext* const call = CallContext::Of(context);
  if (call == nullptr) return;
  if (call->observed.has_value()) call->observed->Sends(bytes);
  if (call->open_call != nullptr) call->open_call->AnswerBegins(bytes);
}

void CallCounter::NoteAnswerTaken(grpc::CallbackServerContext* context) {
  CallContext* const call = CallContext::Of(context);
  if (call != nullptr && call->open_call != nullptr) call->open_call->AnswerTaken();
}

grpc::CallbackServerContext* CallCounter::NewCallbackServerContext() {
  MutexLock lock(&mu_);
  if (!draining_) ++early_calls_;
  return new CallContext(draining_, access_, connections_);
}

void CallCounter::Release(grpc::CallbackServerContext* context) {
  CallContext* const call = CallContext::Of(context);
  if (call == nullptr) return;  // an unknown method: gRPC made this context and deletes it
  if (!call->late) {
    MutexLock lock(&mu_);
    if (--early_calls_ == 0 && draining_) early_calls_left_.SignalAll();
  }
  delete call;
}

}  // namespace phasor::rpc
