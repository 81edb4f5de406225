// SPDX-License-Identifier: Apache-2.0
// Measures idle time with a gRPC alarm. The alarm and its state refer to each other; whoever ends
// the timer drops the alarm, which breaks the cycle.
#include "server/grpc/idle_timer.h"

#include <grpcpp/alarm.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/steady_time.h"

namespace phasor::rpc {

struct IdleTimer::State {
  State(absl::Duration after, std::function<bool()> call)
      : timeout(after), expired(std::move(call)) {}

  const absl::Duration timeout;
  const std::function<bool()> expired;
  absl::Mutex mu;
  absl::Time touched ABSL_GUARDED_BY(mu) = SteadyNow();
  bool stopped ABSL_GUARDED_BY(mu) = false;
  std::unique_ptr<grpc::Alarm> alarm ABSL_GUARDED_BY(mu);
};

IdleTimer::IdleTimer(absl::Duration timeout, std::function<bool()> expired)
    : state_(std::make_shared<State>(timeout, std::move(expired))) {
  if (timeout > absl::ZeroDuration()) Arm(state_, timeout);
}

void IdleTimer::Touch() {
  absl::MutexLock lock(&state_->mu);
  state_->touched = SteadyNow();
}

void IdleTimer::Stop() {
  std::unique_ptr<grpc::Alarm> alarm;  // cancelled after the lock is released
  absl::MutexLock lock(&state_->mu);
  state_->stopped = true;
  alarm = std::move(state_->alarm);
}

void IdleTimer::Arm(const std::shared_ptr<State>& state, absl::Duration wait) {
  auto alarm = std::make_unique<grpc::Alarm>();
  grpc::Alarm* const raw = alarm.get();
  {
    absl::MutexLock lock(&state->mu);
    if (state->stopped) return;
    alarm.swap(state->alarm);
    // The alarm fires on a gRPC thread, never inside Set.
    raw->Set(WallTimeAfter(wait), [state](bool fired) {
      if (fired) Fire(state);
    });
  }
}

void IdleTimer::Fire(const std::shared_ptr<State>& state) {
  absl::Duration wait;
  {
    absl::MutexLock lock(&state->mu);
    if (state->stopped) return;
    wait = state->touched + state->timeout - SteadyNow();
  }
  if (wait <= absl::ZeroDuration()) {
    if (state->expired()) {
      std::unique_ptr<grpc::Alarm> alarm;
      absl::MutexLock lock(&state->mu);
      state->stopped = true;
      alarm = std::move(state->alarm);
      return;
    }
    wait = state->timeout;
    absl::MutexLock lock(&state->mu);
    state->touched = SteadyNow();
  }
  Arm(state, wait);
}

}  // namespace phasor::rpc
