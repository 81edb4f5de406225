// SPDX-License-Identifier: Apache-2.0
// Retries calls: decides whether and when to try again, and runs the attempts.
#include "client/common/retry.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

namespace phasor::client_internal {
namespace {

// Between two looks at a connection.
constexpr absl::Duration kShortestLook = absl::Milliseconds(10);
constexpr absl::Duration kLongestLook = absl::Milliseconds(50);

double UniformJitter() {
  thread_local std::minstd_rand engine{std::random_device{}()};
  return std::generate_canonical<double, 32>(engine);
}

// A call with all its attempts. It is owned by whatever it waits for at the moment.
// Threads: there is only one attempt or wait at a time, so no two threads use it at once.
class RetryingCall : public std::enable_shared_from_this<RetryingCall> {
 public:
  RetryingCall(const RetryPolicy& policy, const CallContext& context, Timer* timer,
               StartAttempt start, absl::AnyInvocable<void(absl::Status)> done)
      : policy_(policy),
        context_(context),
        timer_(timer),
        start_(std::move(start)),
        done_(std::move(done)) {}

  void Attempt() {
    ++attempts_;
    start_([self = shared_from_this()](AttemptResult result) { self->OnResult(result); });
  }

 private:
  void OnResult(const AttemptResult& result) {
    const std::optional<absl::Duration> delay =
        RetryDelay(policy_, attempts_, result, context_.deadline - timer_->Now(), UniformJitter());
    if (!delay.has_value()) return Finish(result.status);
    if (attempts_ == 1) wait_until_ = timer_->Now() + kReconnectWait;
    last_ = result.status;
    TryAgainAfter(*delay);
  }

  void TryAgainAfter(absl::Duration delay) {
    timer_->After(delay, [self = shared_from_this(), delay] { self->TryAgain(delay); });
  }

  // `waited`: the last wait.
  void TryAgain(absl::Duration waited) {
    if (context_.cancel.has_value() && context_.cancel->cancelled()) {
      return Finish(absl::CancelledError("call: cancelled between attempts"));
    }
    const absl::Time now = timer_->Now();
    if (policy_.connected == nullptr || policy_.connected() || now >= wait_until_) return Attempt();
    if (now >= context_.deadline) return Finish(last_);
    TryAgainAfter(std::clamp(waited, kShortestLook, kLongestLook));
  }

  void Finish(absl::Status status) { std::exchange(done_, nullptr)(std::move(status)); }

  const RetryPolicy policy_;
  const CallContext context_;
  Timer* const timer_;
  StartAttempt start_;
  absl::AnyInvocable<void(absl::Status)> done_;
  int attempts_ = 0;
  absl::Status last_;      // of the last attempt
  absl::Time wait_until_;  // for a connection
};

}  // namespace

std::optional<absl::Duration> RetryDelay(const RetryPolicy& policy, int attempts,
                                         const AttemptResult& last, absl::Duration time_left,
                                         double jitter) {
  if (!absl::IsUnavailable(last.status) || attempts >= policy.max_attempts) return std::nullopt;
  if (policy.only_refused && !last.pushback.has_value()) return std::nullopt;
  absl::Duration delay;
  if (last.pushback.has_value()) {
    if (*last.pushback < absl::ZeroDuration()) return std::nullopt;
    delay = *last.pushback;
  } else {
    const absl::Duration grown = policy.initial_backoff * std::ldexp(1.0, attempts - 1);
    delay = std::min(grown, policy.max_backoff) * (0.5 + 0.5 * jitter);
  }
  if (delay >= time_left) return std::nullopt;
  return delay;
}

void RunWithRetries(const RetryPolicy& policy, const CallContext& context, Timer* timer,
                    StartAttempt start, absl::AnyInvocable<void(absl::Status)> done) {
  std::make_shared<RetryingCall>(policy, context, timer, std::move(start), std::move(done))
      ->Attempt();
}

}  // namespace phasor::client_internal
