// SPDX-License-Identifier: Apache-2.0
// Counts calls and the bytes that they receive, from their first header to the last byte of their
// answer. So a shutdown can wait for them, and tell them from calls that came too late. gRPC's own
// Shutdown cancels calls that arrive before their client has read GOAWAY, and clients do not retry
// CANCELLED.
#ifndef PHASOR_SERVER_GRPC_CALL_COUNTER_H_
#define PHASOR_SERVER_GRPC_CALL_COUNTER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/engine/phases.h"
#include "server/grpc/call_observer.h"
#include "server/net/connections.h"

namespace phasor::rpc {

// The error of a call that comes too late, or of a stream that must end for the shutdown.
absl::Status Draining();

class Access;

// Counts the calls of callback services. Threads: any.
class CallCounter final : public grpc::ContextAllocator {
 public:
  // Refusal checks calls with `access`; nullptr: it refuses none. RegionCallerOf names connections
  // as `connections` does; nullptr: by the peer's address. Both must outlive the calls.
  explicit CallCounter(Access* access = nullptr, const Connections* connections = nullptr)
      : access_(access), connections_(connections) {}

  // From now on, calls that begin are late.
  void StartDraining();
  // Waits until all calls that are not late have ended. Returns false if `time` passes first.
  bool WaitForEarlyCalls(absl::Duration time);

  // Adds to the received bytes of the call, which observers see.
  static void NoteReceived(grpc::CallbackServerContext* context, int64_t bytes);
  // A message of a stream has arrived: NoteReceived, and the stream ends if it is compressed.
  static void NoteMessage(grpc::CallbackServerContext* context, int64_t bytes);
  // nullopt if neither was called.
  static std::optional<int64_t> ReceivedBytes(const grpc::ServerContextBase& context);

  // Tells observers when the steps of the call began. Only before the call is finished.
  static void NotePhases(grpc::CallbackServerContext* context, const engine::Phases& phases);

  // Who hears of the messages of this stream. nullptr: nobody.
  static std::shared_ptr<StreamObserver> ObserverOf(grpc::CallbackServerContext* context);

  // For each answer of a stream: sending begins, and it was taken. OpenCalls limits the time
  // between the two. Only before the call is finished.
  static void NoteAnswer(grpc::CallbackServerContext* context, int64_t bytes);
  static void NoteAnswerTaken(grpc::CallbackServerContext* context);

  grpc::CallbackServerContext* NewCallbackServerContext() override;
  void Release(grpc::CallbackServerContext* context) override;
  using grpc::ContextAllocator::Release;

 private:
  Access* const access_;
  const Connections* const connections_;
  Mutex mu_;
  CondVar early_calls_left_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  int64_t early_calls_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALL_COUNTER_H_
