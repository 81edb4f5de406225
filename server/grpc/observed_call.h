// SPDX-License-Identifier: Apache-2.0
// ObservedCall: one call with its limits and its observers, from its arrival until it is gone.
#ifndef PHASOR_SERVER_GRPC_OBSERVED_CALL_H_
#define PHASOR_SERVER_GRPC_OBSERVED_CALL_H_

#include <grpcpp/server_context.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/engine/phases.h"
#include "server/grpc/call_observer.h"
#include "server/grpc/open_calls.h"

namespace phasor::rpc {

// Threads: one at a time.
class ObservedCall {
 public:
  // `method` is as in CallRecord. All that is passed must outlive this.
  ObservedCall(std::string_view method, grpc::ServerContextBase* context, OpenCalls* calls,
               const std::vector<CallObserver*>& observers);
  // The caller of a call that has not ended went away.
  ~ObservedCall();
  ObservedCall(const ObservedCall&) = delete;
  ObservedCall& operator=(const ObservedCall&) = delete;

  // Applies the limits, which may refuse the call. Runs before the handler, but once the context
  // knows its call.
  void Begin();
  // Asks the observers who hears of the messages of this stream. After Begin.
  void BeginStream();
  // Refuses the call if the message that has arrived is compressed. After Begin.
  void RefuseCompressed();

  // A message will be sent.
  void Sends(int64_t bytes);
  // The status will be sent, with the last message if there is one.
  void End(const grpc::Status& status);

 private:
  // The code with which the call ended, if its handler ends it with `status`.
  int CodeOf(const grpc::Status& status) const;
  void Report(int code, const std::string& message, absl::FunctionRef<std::string()> peer,
              absl::FunctionRef<std::string()> traceparent);

  const std::string_view method_;
  grpc::ServerContextBase& context_;
  OpenCalls& calls_;
  const std::vector<CallObserver*>& observers_;
  std::optional<OpenCalls::Call> call_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  int64_t message_bytes_ = 0;  // of the last message
  int64_t sent_bytes_ = 0;
  std::optional<int64_t> received_bytes_;
  engine::Phases phases_;
  std::shared_ptr<StreamObserver> stream_;
  bool ended_ = false;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_OBSERVED_CALL_H_
