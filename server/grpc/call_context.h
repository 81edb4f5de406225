// SPDX-License-Identifier: Apache-2.0
// What the server knows of a call beside what gRPC does.
#ifndef PHASOR_SERVER_GRPC_CALL_CONTEXT_H_
#define PHASOR_SERVER_GRPC_CALL_CONTEXT_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "server/base/admission.h"
#include "server/grpc/open_calls.h"
#include "server/security/rules.h"

namespace phasor::rpc {

class Access;

// Made by CallCounter. Threads: written by gRPC's thread before the handler's first reaction, read
// by any afterwards; `until_sent` by the thread that answers.
class CallContext final : public grpc::CallbackServerContext {
 public:
  CallContext(bool is_late, Access* gate) : late(is_late), access(gate) {}

  // nullptr: some other context.
  static CallContext* Of(grpc::CallbackServerContext* context) {
    return dynamic_cast<CallContext*>(context);
  }
  static const CallContext* Of(const grpc::CallbackServerContext* context) {
    return dynamic_cast<const CallContext*>(context);
  }

  const bool late;          // began after the server began to drain
  Access* const access;     // nullptr: everybody may everything
  std::string_view method;  // "package.Service/Method"; gRPC's memory; empty without an access
  absl::Status refusal;     // by OpenCalls, which has ended the call already
  OpenCalls::Call* open_call = nullptr;  // lives as long as this; nullptr: nobody counts calls
  security::Decision decision;
  Permit until_sent;  // let go when the answer has been sent

  static constexpr int64_t kNothingNoted = -1;
  std::atomic<int64_t> received_bytes = kNothingNoted;  // any thread
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALL_CONTEXT_H_
