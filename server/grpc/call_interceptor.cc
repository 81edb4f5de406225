// SPDX-License-Identifier: Apache-2.0
// Intercepts calls. gRPC makes an interceptor when a call arrives and destroys it with the call.
// With an interceptor, gRPC takes every call, and every message of a stream, through its completion
// queue twice more, which costs more than a small call.
#include "server/grpc/call_interceptor.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/grpc/call_context.h"
#include "server/grpc/observed_call.h"

namespace phasor::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using Type = grpc::experimental::ServerRpcInfo::Type;

// The method without its leading slash.
std::string_view MethodOf(const grpc::experimental::ServerRpcInfo& info) {
  std::string_view method = info.method();
  if (method.starts_with('/')) method.remove_prefix(1);
  return method;
}

class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(grpc::experimental::ServerRpcInfo* info, OpenCalls* calls,
                  const std::vector<CallObserver*>& observers)
      : info_(*info),
        method_(MethodOf(*info)),
        call_(method_, info->server_context(), calls, observers) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    // Earlier, the contexts of some methods do not know their call yet.
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      call_.Begin();
      if (info_.type() == Type::BIDI_STREAMING) call_.BeginStream();
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      call_.RefuseCompressed();
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const grpc::ByteBuffer* const message = methods->GetSerializedSendMessage();
      call_.Sends(message == nullptr ? 0 : static_cast<int64_t>(message->Length()));
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      call_.End(methods->GetSendStatus());
    }
    methods->Proceed();
  }

 private:
  grpc::experimental::ServerRpcInfo& info_;
  // A copy, because gRPC frees the name of an unknown method before it frees this.
  const std::string method_;
  ObservedCall call_;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Factory(OpenCalls* calls, std::vector<CallObserver*> observers, std::vector<std::string> finished)
      : calls_(calls), observers_(std::move(observers)), finished_(std::move(finished)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    CallContext* const context = CallContext::Of(info->server_context());
    if (context != nullptr) context->method = MethodOf(*info);
    if (context == nullptr || !IsFinished(*info)) {
      return new CallInterceptor(info, calls_, observers_);
    }
    context->observed.emplace(context->method, context, calls_, observers_);
    context->observed->Begin();
    if (info->type() == Type::UNARY) {
      context->observed->RefuseCompressed();
    } else {
      context->observed->BeginStream();
    }
    return nullptr;
  }

 private:
  // Whether FinishCall or FinishStream reports the end of the call.
  bool IsFinished(const grpc::experimental::ServerRpcInfo& info) const {
    return (info.type() == Type::UNARY || info.type() == Type::BIDI_STREAMING) &&
           std::any_of(finished_.begin(), finished_.end(), [&](const std::string& prefix) {
             return MethodOf(info).starts_with(prefix);
           });
  }

  OpenCalls* const calls_;
  const std::vector<CallObserver*> observers_;
  const std::vector<std::string> finished_;
};

}  // namespace

std::string CodeName(int code) {
  const std::string name(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  return name.empty() ? absl::StrCat(code) : name;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallInterceptors(
    OpenCalls* calls, std::vector<CallObserver*> observers, std::vector<std::string> finished) {
  return std::make_unique<Factory>(calls, std::move(observers), std::move(finished));
}

}  // namespace phasor::rpc
