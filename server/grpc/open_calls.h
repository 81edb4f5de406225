// SPDX-License-Identifier: Apache-2.0
// OpenCalls: limits on calls that hold whatever a peer acknowledges or reads. gRPC 1.51 applies its
// own limits on streams and headers only after the peer has acknowledged SETTINGS. An answer that
// does not fit the peer's window waits as long as the connection lives.
#ifndef PHASOR_SERVER_GRPC_OPEN_CALLS_H_
#define PHASOR_SERVER_GRPC_OPEN_CALLS_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/base/stop_signal.h"

namespace phasor::rpc {

struct OpenCallLimits {
  int calls_per_connection = 0;
  int64_t metadata_bytes = 0;                         // per call
  absl::Duration answer_timeout = absl::Seconds(60);  // for an answer to be taken; 0: no limit
};

// An answer has this much more time per MiB, so that slow readers are not cut off.
inline constexpr absl::Duration kAnswerTimePerMiB = absl::Seconds(1);

// All calls of one gRPC server. Owns a thread that ends calls whose answers are not taken. Must
// outlive the server's calls. Threads: any.
class OpenCalls {
 public:
  // `ended` is told how many calls were ended because their answers were not taken; may be nullptr.
  OpenCalls(const OpenCallLimits& limits, std::function<void(int64_t)> ended);
  ~OpenCalls();
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // One call, from its arrival until gRPC destroys its context.
  class Call {
   public:
    // Ends a call of any service at once if it exceeds a limit. The caller gets UNAVAILABLE for too
    // many calls, or RESOURCE_EXHAUSTED for too much metadata.
    Call(OpenCalls* calls, grpc::ServerContextBase* context);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Why the constructor or Refuse ended the call, or OK.
    const absl::Status& refusal() const { return refusal_; }

    // Ends the call with `status`.
    void Refuse(absl::Status status);
    // Whether the last message came with gRPC's mark for compressed bytes. All compression that
    // gRPC knows is off, so nobody can read such a message.
    bool MarkedAsCompressed() const;

    // An answer of `bytes` bytes waits to be taken from now on.
    void AnswerBegins(int64_t bytes);
    void AnswerTaken() { due_.store(kNothingDue, std::memory_order_relaxed); }

   private:
    friend class OpenCalls;
    static constexpr int64_t kNothingDue = INT64_MAX;

    OpenCalls& calls_;
    grpc_call* const call_;                   // holds a reference
    grpc_auth_context* const connection_;     // holds a reference; there is one for each connection
    std::atomic<int64_t> due_ = kNothingDue;  // ns of CoarseNanos
    absl::Status refusal_;
  };

 private:
  // Returns false if the connection has as many calls as it may have.
  bool Add(Call* call);
  void Remove(Call* call);
  void Watch();
  void EndOverdue();

  const OpenCallLimits limits_;
  const int64_t answer_ns_;  // limits_.answer_timeout
  const std::function<void(int64_t)> ended_;
  // The watch waits with a mutex of its own: as long as a thread waits for a condition of a mutex,
  // whoever unlocks it evaluates the condition.
  StopSignal stop_;
  absl::Mutex mu_;
  absl::flat_hash_set<Call*> calls_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const grpc_auth_context*, int> of_connection_ ABSL_GUARDED_BY(mu_);
  std::thread watch_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_OPEN_CALLS_H_
