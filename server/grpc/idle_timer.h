// SPDX-License-Identifier: Apache-2.0
// Notices that a stream has gone quiet. A caller that opens streams and says nothing would
// otherwise hold what they hold for as long as its connection lives.
#ifndef PHASOR_SERVER_GRPC_IDLE_TIMER_H_
#define PHASOR_SERVER_GRPC_IDLE_TIMER_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace phasor::rpc {

// Threads: any. Costs one alarm per `timeout`, however often it is touched.
class IdleTimer {
 public:
  // Calls `expired`, on a thread of gRPC, when nothing was touched for `timeout`; 0: never. Once it
  // has returned true that was all; false counts as a touch. It may still be running when Stop
  // returns: capture what keeps it safe.
  IdleTimer(absl::Duration timeout, std::function<bool()> expired);
  ~IdleTimer() { Stop(); }
  IdleTimer(const IdleTimer&) = delete;
  IdleTimer& operator=(const IdleTimer&) = delete;

  void Touch();
  // No call begins from now on. Idempotent.
  void Stop();

 private:
  struct State;
  static void Arm(const std::shared_ptr<State>& state, absl::Duration wait);
  static void Fire(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_IDLE_TIMER_H_
