// SPDX-License-Identifier: Apache-2.0
// Counts calls, and what they receive, from their first header to the last byte of their answer, so
// that a shutdown can wait for them and tell them from those that came too late. gRPC's own
// Shutdown cancels calls that reach it before their client has read GOAWAY; clients do not retry
// CANCELLED.
#ifndef PHASOR_SERVER_GRPC_CALL_COUNTER_H_
#define PHASOR_SERVER_GRPC_CALL_COUNTER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace phasor::rpc {

// What a call or stream is told that comes too late, or must end for the shutdown.
absl::Status Draining();

class Access;

// Counts the calls of callback services. Threads: any.
class CallCounter final : public grpc::ContextAllocator {
 public:
  // `access`: what Refusal asks about the calls; must outlive them; nullptr: refuses none.
  explicit CallCounter(Access* access = nullptr) : access_(access) {}

  // Calls that begin from now on are late.
  void StartDraining();
  // Waits until every call that is not late has ended, or until `deadline`: then false.
  bool WaitForEarlyCalls(absl::Time deadline);

  // Adds to what the call has received, for those who observe it.
  static void NoteReceived(grpc::CallbackServerContext* context, int64_t bytes);
  // Nothing if nobody noted any.
  static std::optional<int64_t> ReceivedBytes(const grpc::ServerContextBase& context);

  // Of each answer of a stream but the last, which needs no note: that it begins to be sent, and
  // that it was. Between the two OpenCalls waits only so long. Before the call is finished.
  static void NoteAnswer(grpc::CallbackServerContext* context, int64_t bytes);
  static void NoteAnswerTaken(grpc::CallbackServerContext* context);

  grpc::CallbackServerContext* NewCallbackServerContext() override;
  void Release(grpc::CallbackServerContext* context) override;
  using grpc::ContextAllocator::Release;

 private:
  bool NoEarlyCalls() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return early_calls_ == 0; }

  Access* const access_;
  absl::Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  int64_t early_calls_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALL_COUNTER_H_
