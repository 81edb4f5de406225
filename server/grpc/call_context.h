// SPDX-License-Identifier: Apache-2.0
// CallContext: what the server knows about a call in addition to gRPC.
#ifndef PHASOR_SERVER_GRPC_CALL_CONTEXT_H_
#define PHASOR_SERVER_GRPC_CALL_CONTEXT_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <typeinfo>

#include "server/base/admission.h"
#include "server/engine/phases.h"
#include "server/grpc/call_observer.h"
#include "server/grpc/observed_call.h"
#include "server/grpc/open_calls.h"
#include "server/net/connections.h"
#include "server/security/rules.h"

namespace phasor::rpc {

class Access;

// The context of a call, made by CallCounter.
// Threads: gRPC's thread writes it before the handler's first reaction; afterwards any thread may
// read it. The permits are written by the thread that answers.
class CallContext final : public grpc::CallbackServerContext {
 public:
  CallContext(bool is_late, Access* gate, const Connections* named)
      : late(is_late), access(gate), connections(named) {}

  // nullptr if it is another kind of context.
  static const CallContext* Of(const grpc::ServerContextBase* context) {
    // Every call asks several times; dynamic_cast walks the classes, which takes far longer.
    if (context == nullptr || typeid(*context) != typeid(CallContext)) return nullptr;
    return static_cast<const CallContext*>(context);
  }
  static CallContext* Of(grpc::ServerContextBase* context) {
    return const_cast<CallContext*>(Of(static_cast<const grpc::ServerContextBase*>(context)));
  }

  const bool late;                         // began after the server began to drain
  Access* const access;                    // nullptr: everyone may call everything
  const Connections* const connections;    // nullptr: connections have no names
  std::string_view method;                 // "package.Service/Method", in gRPC's memory
  absl::Status refusal;                    // from OpenCalls, which has already ended the call
  OpenCalls::Call* open_call = nullptr;    // lives as long as this; nullptr: calls are not counted
  std::shared_ptr<StreamObserver> stream;  // hears of messages; nullptr: nobody does
  std::optional<ObservedCall> observed;    // of a call without an interceptor
  security::Decision decision;
  // Destroyed when the answer has been sent.
  Permit quota_until_sent;
  Permit budget_until_sent;
  engine::Phases phases;  // written by the thread that answers

  static constexpr int64_t kNothingNoted = -1;
  std::atomic<int64_t> received_bytes = kNothingNoted;  // any thread
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALL_CONTEXT_H_
