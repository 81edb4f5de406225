// SPDX-License-Identifier: Apache-2.0
// Applies the limits to a call and reports its beginning and its end. A call that ends without a
// status from the server, because its connection broke, is counted when it is gone.
#include "server/grpc/observed_call.h"

#include <string>

#include "absl/status/status.h"
#include "server/grpc/call_context.h"
#include "server/grpc/call_counter.h"

namespace phasor::rpc {
namespace {

// The first value of `key` in the metadata of a call.
std::string MetadataOf(const grpc::ServerContextBase& context, const char* key) {
  const auto entry = context.client_metadata().find(key);
  if (entry == context.client_metadata().end()) return "";
  return std::string(entry->second.data(), entry->second.size());
}

}  // namespace

ObservedCall::ObservedCall(std::string_view method, grpc::ServerContextBase* context,
                           OpenCalls* calls, const std::vector<CallObserver*>& observers)
    : method_(method), context_(*context), calls_(*calls), observers_(observers) {
  for (CallObserver* const observer : observers_) observer->Started(method_);
}

ObservedCall::~ObservedCall() {
  const auto nothing = [] { return std::string(); };
  if (!ended_) Report(grpc::StatusCode::CANCELLED, "the caller went away", nothing, nothing);
}

void ObservedCall::Begin() {
  call_.emplace(&calls_, &context_);
  CallContext* const context = CallContext::Of(&context_);
  if (context == nullptr) return;
  context->refusal = call_->refusal();
  context->open_call = &*call_;
}

void ObservedCall::BeginStream() {
  CallContext* const context = CallContext::Of(&context_);
  if (context == nullptr) return;
  const std::string traceparent = MetadataOf(context_, "traceparent");
  for (CallObserver* const observer : observers_) {
    stream_ = observer->StreamBegins(traceparent);
    if (stream_ != nullptr) break;
  }
  context->stream = stream_;
}

// gRPC has refused the encodings that it knows.
void ObservedCall::RefuseCompressed() {
  if (!call_.has_value() || !call_->MarkedAsCompressed()) return;
  call_->Refuse(absl::UnimplementedError(
      "message: compressed with an unknown encoding; must not be compressed"));
  CallContext* const context = CallContext::Of(&context_);
  if (context != nullptr) context->refusal = call_->refusal();
}

void ObservedCall::Sends(int64_t bytes) {
  message_bytes_ = bytes;
  sent_bytes_ += bytes;
}

void ObservedCall::End(const grpc::Status& status) {
  // This is the last answer. Handlers must note the earlier ones, because gRPC 1.51 does not tell
  // interceptors when an answer was sent.
  if (call_.has_value()) call_->AnswerBegins(message_bytes_);
  received_bytes_ = CallCounter::ReceivedBytes(context_);
  if (const CallContext* const own = CallContext::Of(&context_)) phases_ = own->phases;
  Report(
      CodeOf(status), status.error_message(), [this] { return context_.peer(); },
      [this] { return MetadataOf(context_, "traceparent"); });
}

// gRPC also calls a call cancelled that our limits have ended, or whose deadline has passed. Then
// its caller sees that. A caller that has gone sees nothing.
int ObservedCall::CodeOf(const grpc::Status& status) const {
  if (!context_.IsCancelled()) return status.error_code();
  if (call_.has_value() && !call_->refusal().ok()) {
    return static_cast<int>(call_->refusal().code());
  }
  const gpr_timespec deadline = context_.raw_deadline();
  const bool passed = gpr_time_cmp(deadline, gpr_now(deadline.clock_type)) <= 0;
  const bool late = passed || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  return late ? grpc::StatusCode::DEADLINE_EXCEEDED : grpc::StatusCode::CANCELLED;
}

void ObservedCall::Report(int code, const std::string& message,
                          absl::FunctionRef<std::string()> peer,
                          absl::FunctionRef<std::string()> traceparent) {
  ended_ = true;
  const absl::Duration duration = absl::FromChrono(std::chrono::steady_clock::now() - begun_);
  const CallRecord record{method_,         code, message,     duration, sent_bytes_,
                          received_bytes_, peer, traceparent, phases_,  stream_.get()};
  for (CallObserver* const observer : observers_) observer->Ended(record);
}

}  // namespace phasor::rpc
