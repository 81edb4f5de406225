// SPDX-License-Identifier: Apache-2.0
// Intercepts every call. gRPC makes an interceptor when a call arrives and destroys it with the
// call. A call that ends without a status from the server, because its connection broke, is counted
// then.
#include "server/grpc/call_interceptor.h"

#include <grpcpp/grpcpp.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/grpc/call_context.h"
#include "server/grpc/call_counter.h"

namespace phasor::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using Clock = std::chrono::steady_clock;

constexpr std::array<const char*, 17> kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// The first value of `key` in the metadata of a call.
std::string MetadataOf(const grpc::ServerContextBase& context, const char* key) {
  const auto entry = context.client_metadata().find(key);
  if (entry == context.client_metadata().end()) return "";
  return std::string(entry->second.data(), entry->second.size());
}

// The method without its leading slash.
std::string MethodOf(const grpc::experimental::ServerRpcInfo& info) {
  std::string_view method = info.method();
  if (method.starts_with('/')) method.remove_prefix(1);
  return std::string(method);
}

class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(grpc::experimental::ServerRpcInfo* info, OpenCalls* calls,
                  const std::vector<CallObserver*>& observers)
      : info_(*info), calls_(*calls), method_(MethodOf(*info)), observers_(observers) {
    for (CallObserver* const observer : observers_) observer->Started(method_);
  }

  ~CallInterceptor() override {
    const auto nothing = [] { return std::string(); };
    if (!ended_) End(grpc::StatusCode::CANCELLED, "the caller went away", nothing, nothing);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      Begin();
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      RefuseCompressed();
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const grpc::ByteBuffer* const message = methods->GetSerializedSendMessage();
      message_bytes_ = message == nullptr ? 0 : static_cast<int64_t>(message->Length());
      sent_bytes_ += message_bytes_;
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // This is the last answer. Handlers must note the earlier ones, because gRPC 1.51 does not
      // tell interceptors when an answer was sent.
      if (call_.has_value()) call_->AnswerBegins(message_bytes_);
      const grpc::Status status = methods->GetSendStatus();
      grpc::ServerContextBase& context = *info_.server_context();
      // A caller that has gone does not see the status.
      const int code = context.IsCancelled() ? grpc::StatusCode::CANCELLED : status.error_code();
      received_bytes_ = CallCounter::ReceivedBytes(context);
      if (const CallContext* const own = CallContext::Of(&context)) phases_ = own->phases;
      End(
          code, status.error_message(), [&context] { return context.peer(); },
          [&context] { return MetadataOf(context, "traceparent"); });
    }
    methods->Proceed();
  }

 private:
  // Runs before the handler. Earlier, the contexts of some methods do not know their call yet.
  void Begin() {
    call_.emplace(&calls_, info_.server_context());
    CallContext* const context = CallContext::Of(info_.server_context());
    if (context == nullptr) return;
    context->refusal = call_->refusal();
    context->open_call = &*call_;
    if (info_.type() == grpc::experimental::ServerRpcInfo::Type::BIDI_STREAMING) {
      context->stream = stream_ = StreamBegins(MetadataOf(*context, "traceparent"));
    }
  }

  std::shared_ptr<StreamObserver> StreamBegins(const std::string& traceparent) {
    for (CallObserver* const observer : observers_) {
      if (auto stream = observer->StreamBegins(traceparent)) return stream;
    }
    return nullptr;
  }

  // gRPC has refused the encodings that it knows.
  void RefuseCompressed() {
    if (!call_.has_value() || !call_->MarkedAsCompressed()) return;
    call_->Refuse(absl::UnimplementedError(
        "message: compressed with an unknown encoding; must not be compressed"));
    CallContext* const context = CallContext::Of(info_.server_context());
    if (context != nullptr) context->refusal = call_->refusal();
  }

  void End(int code, const std::string& message, absl::FunctionRef<std::string()> peer,
           absl::FunctionRef<std::string()> traceparent) {
    ended_ = true;
    const absl::Duration duration = absl::FromChrono(Clock::now() - begun_);
    const CallRecord record{method_,         code, message,     duration, sent_bytes_,
                            received_bytes_, peer, traceparent, phases_,  stream_.get()};
    for (CallObserver* const observer : observers_) observer->Ended(record);
  }

  grpc::experimental::ServerRpcInfo& info_;
  OpenCalls& calls_;
  std::optional<OpenCalls::Call> call_;
  // A copy, because gRPC frees the name of an unknown method before it frees this.
  const std::string method_;
  const std::vector<CallObserver*>& observers_;
  const Clock::time_point begun_ = Clock::now();
  int64_t message_bytes_ = 0;  // of the last message
  int64_t sent_bytes_ = 0;
  std::optional<int64_t> received_bytes_;
  engine::Phases phases_;
  std::shared_ptr<StreamObserver> stream_;
  bool ended_ = false;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Factory(OpenCalls* calls, std::vector<CallObserver*> observers)
      : calls_(calls), observers_(std::move(observers)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new CallInterceptor(info, calls_, observers_);
  }

 private:
  OpenCalls* const calls_;
  const std::vector<CallObserver*> observers_;
};

}  // namespace

std::string CodeName(int code) {
  const auto index = static_cast<size_t>(code);
  return index < kCodeNames.size() ? kCodeNames[index] : absl::StrCat(code);
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallInterceptors(
    OpenCalls* calls, std::vector<CallObserver*> observers) {
  return std::make_unique<Factory>(calls, std::move(observers));
}

}  // namespace phasor::rpc
