// SPDX-License-Identifier: Apache-2.0
// CallerQueue: a completion queue for a thread that waits for its call. The thread moves the bytes
// itself, which saves waking another one twice per call.
#ifndef PHASOR_CLIENT_GRPC_CALLER_QUEUE_H_
#define PHASOR_CLIENT_GRPC_CALLER_QUEUE_H_

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>

#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace phasor::client_internal {

// How often a thread that waits asks whether it was interrupted.
inline constexpr absl::Duration kAskInterval = absl::Milliseconds(20);
// How long a wait goes on after it was interrupted, or its deadline has passed. gRPC needs some of
// it to end a call, and does not end a write while the server's system takes no bytes.
inline constexpr absl::Duration kGraceOfInterruption = absl::Milliseconds(40);
inline constexpr absl::Duration kGraceOfDeadline = absl::Milliseconds(500);

// What may end a wait early.
struct WaitLimits {
  absl::Time deadline = absl::InfiniteFuture();  // counts only if `interrupted` is set
  // As in CallContext. True once, and it is not asked again.
  std::function<bool()> interrupted = nullptr;
};

// Threads: one at a time.
class CallerQueue {
 public:
  // A queue without operations: the one of this thread, unless it is in use. If the thread made no
  // call of late, reads first what the server has sent meanwhile, such as that it has closed the
  // connection.
  static std::unique_ptr<CallerQueue> Take();
  // Keeps a queue without operations for this thread's next call.
  static void GiveBack(std::unique_ptr<CallerQueue> queue);
  ~CallerQueue();

  grpc::CompletionQueue* queue() { return &queue_; }

  // Waits for the end of the only operation. Calls `cancel` when it is interrupted. False: the
  // operation has not ended soon after that, or after the deadline, so the queue is still in use.
  bool Wait(const WaitLimits& limits, absl::FunctionRef<void()> cancel);
  // The same without limits.
  void WaitForEnd();

  // Without an operation: waits for this time, and lets the channel connect meanwhile, which no
  // other thread of the process may do. True: it was interrupted.
  bool Sleep(absl::Duration time, grpc::Channel& channel, const std::function<bool()>& interrupted);
  // Without an operation: lets gRPC make progress until `done`. False: the limits ended it.
  bool PollUntil(absl::FunctionRef<bool()> done, const WaitLimits& limits);

 private:
  // Lets gRPC make progress for this time. gRPC rounds it up to whole milliseconds.
  void Poll(absl::Duration time);
  // Lets gRPC read what has come, without waiting for more.
  void ReadWhatHasCome();

  grpc::CompletionQueue queue_;
  absl::Time given_back_ = absl::InfinitePast();
};

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_CALLER_QUEUE_H_
