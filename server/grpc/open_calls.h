// SPDX-License-Identifier: Apache-2.0
// Limits on calls that hold in spite of what a peer acknowledges or takes. gRPC 1.51 applies its
// own limits on streams and headers only once the peer has acknowledged SETTINGS, and an answer
// that the peer's window has no room for waits for as long as the connection lives.
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

namespace phasor::rpc {

struct OpenCallLimits {
  int calls_per_connection = 0;
  int64_t metadata_bytes = 0;                         // of one call
  absl::Duration answer_timeout = absl::Seconds(60);  // of an answer; 0: never
};

// An answer has this much longer for each MiB of it, so that a slow reader is not cut off.
inline constexpr absl::Duration kAnswerTimePerMiB = absl::Seconds(1);

// All calls of one gRPC server. Threads: any. Owns one thread, which ends calls whose answers
// nobody takes. Must outlive the server's calls.
class OpenCalls {
 public:
  // `ended` is told how many calls were ended because nobody took their answers; may be nullptr.
  OpenCalls(const OpenCallLimits& limits, std::function<void(int64_t)> ended);
  ~OpenCalls();
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // One call, from when gRPC shows it until gRPC destroys its context.
  class Call {
   public:
    // A call beyond a limit is ended here, whatever service it is of: the caller gets
    // UNAVAILABLE (too many calls) or RESOURCE_EXHAUSTED (too much metadata).
    Call(OpenCalls* calls, grpc::ServerContextBase* context);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Why the call was ended, or OK.
    const absl::Status& refusal() const { return refusal_; }

    // `bytes` of an answer wait to be taken from now on.
    void AnswerBegins(int64_t bytes);
    void AnswerTaken() { due_.store(kNothingDue, std::memory_order_relaxed); }

   private:
    friend class OpenCalls;
    static constexpr int64_t kNothingDue = INT64_MAX;

    OpenCalls& calls_;
    grpc_call* const call_;                   // holds a reference
    grpc_auth_context* const connection_;     // the same; gRPC makes one for each connection
    std::atomic<int64_t> due_ = kNothingDue;  // ns since the epoch
    absl::Status refusal_;
  };

 private:
  // False: the connection has as many as it may have.
  bool Add(Call* call);
  void Remove(Call* call);
  void Watch();
  void EndOverdue();

  const OpenCallLimits limits_;
  const std::function<void(int64_t)> ended_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<Call*> calls_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const grpc_auth_context*, int> of_connection_ ABSL_GUARDED_BY(mu_);
  std::thread watch_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_OPEN_CALLS_H_
