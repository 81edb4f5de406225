// SPDX-License-Identifier: Apache-2.0
// CallObserver: what a server reports about its calls, for metrics, logs and traces.
#ifndef PHASOR_SERVER_GRPC_CALL_OBSERVER_H_
#define PHASOR_SERVER_GRPC_CALL_OBSERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/engine/phases.h"

namespace phasor::rpc {

// The report about a message of a stream that is being answered.
struct MessageRecord {
  std::chrono::steady_clock::time_point received = {};
  int code = 0;  // of its answer
  int64_t received_bytes = 0;
  int64_t sent_bytes = 0;
  engine::Phases phases = {};  // none are set if nothing was computed
};

// Receives the reports about the messages of one stream while it runs, some perhaps after its end.
// Threads: many at once.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  virtual void Answered(const MessageRecord& message) = 0;
};

// The report about a call. It and everything that it points to are valid only during
// CallObserver::Ended.
struct CallRecord {
  // e.g. "phasor.v1.PositionEmbeddingService/Encode". For an unknown method, the name that the
  // caller sent.
  std::string_view method;
  int code = 0;  // a gRPC code, 0 to 16
  std::string_view message;
  absl::Duration duration;                       // from the call's first byte to its status
  int64_t sent_bytes = 0;                        // of its messages
  std::optional<int64_t> received_bytes;         // nullopt: not measured for this method
  absl::FunctionRef<std::string()> peer;         // "ipv4:10.0.0.1:4711"
  absl::FunctionRef<std::string()> traceparent;  // from the metadata as sent; often empty
  engine::Phases phases = {};                    // of a unary tensor call
  const StreamObserver* stream = nullptr;        // from StreamBegins
};

// "OK", "INVALID_ARGUMENT" and so on; the number of a code that gRPC does not name.
std::string CodeName(int code);

// Receives the reports. It is on the path of every call, so no method may block for long.
// Threads: many at once.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // `method` is as in CallRecord, and is valid only during this call.
  virtual void Started(std::string_view method) = 0;
  // A stream of tensor calls begins; `traceparent` is as in CallRecord. Of all observers, one may
  // return who shall hear of its messages.
  virtual std::shared_ptr<StreamObserver> StreamBegins(std::string_view /*traceparent*/) {
    return nullptr;
  }
  // Called exactly once per Started, before the caller can see the status.
  virtual void Ended(const CallRecord& call) = 0;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALL_OBSERVER_H_
