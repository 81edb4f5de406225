// SPDX-License-Identifier: Apache-2.0
// What a server tells of the calls it answers, for metrics and logs.
#ifndef PHASOR_SERVER_GRPC_CALL_OBSERVER_H_
#define PHASOR_SERVER_GRPC_CALL_OBSERVER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace phasor::rpc {

// A call that is being answered. It and all that it points to is valid during CallObserver::Ended
// only.
struct CallRecord {
  // "phasor.v1.PositionEmbeddingService/Encode"; whatever the caller sent if there is no such
  // method
  std::string_view method;
  int code = 0;  // of gRPC, 0 to 16
  std::string_view message;
  absl::Duration duration;                       // from the call's first byte to its status
  int64_t sent_bytes = 0;                        // of its messages
  std::optional<int64_t> received_bytes;         // nothing: a method whose requests nobody measures
  absl::FunctionRef<std::string()> peer;         // "ipv4:10.0.0.1:4711"
  absl::FunctionRef<std::string()> traceparent;  // of the metadata, as sent; often empty
};

// "OK", "INVALID_ARGUMENT"; the number of a code that gRPC does not name.
std::string CodeName(int code);

// Threads: any, many at once; on the path of every call: no method may block for long.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // `method`: as CallRecord's, valid during this call only.
  virtual void Started(std::string_view method) = 0;
  // Before the caller can see the status. Once per Started.
  virtual void Ended(const CallRecord& call) = 0;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALL_OBSERVER_H_
