// SPDX-License-Identifier: Apache-2.0
// IdleTimer: detects a stream that has gone quiet. Otherwise a caller that opens streams and sends
// nothing would hold their resources as long as its connection lives.
#ifndef PHASOR_SERVER_GRPC_IDLE_TIMER_H_
#define PHASOR_SERVER_GRPC_IDLE_TIMER_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace phasor::rpc {

// A timer that starts again at each touch. It needs one alarm per `timeout`, however often it is
// touched. Threads: any.
class IdleTimer {
 public:
  // Calls `expired` on a gRPC thread if Touch was not called for `timeout`; 0: never. If `expired`
  // returns true, it is not called again; false counts as a touch. It may still be running when
  // Stop returns, so it must own what it uses.
  IdleTimer(absl::Duration timeout, std::function<bool()> expired);
  ~IdleTimer() { Stop(); }
  IdleTimer(const IdleTimer&) = delete;
  IdleTimer& operator=(const IdleTimer&) = delete;

  void Touch();
  // `expired` does not start from now on. May be called again.
  void Stop();

 private:
  struct State;
  static void Arm(const std::shared_ptr<State>& state, absl::Duration wait);
  static void Fire(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_IDLE_TIMER_H_
