// SPDX-License-Identifier: Apache-2.0
// Attempts of a call until one settles it. Of our own, above the transport: gRPC's retries give up
// on requests over 256 KiB.
#ifndef PHASOR_CLIENT_COMMON_RETRY_H_
#define PHASOR_CLIENT_COMMON_RETRY_H_

#include <functional>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/connection.h"
#include "client/options.h"

namespace phasor::client_internal {

// Time as retries see it; tests give their own. Threads: any.
class Timer {
 public:
  virtual ~Timer() = default;
  virtual absl::Time Now() = 0;
  // Runs `then` once after `delay`, on this thread before returning or on another one.
  virtual void After(absl::Duration delay, absl::AnyInvocable<void()> then) = 0;
};

// Sleeps on the calling thread. Lives for ever.
Timer* SleepingTimer();

// How an attempt ended.
struct AttemptResult {
  absl::Status status;
  // The server's wish: when to come back, negative for never.
  std::optional<absl::Duration> pushback;
};

struct RetryPolicy {
  int max_attempts = 1;
  absl::Duration initial_backoff;
  absl::Duration max_backoff;
  // Only when the server said when to come back: it has refused the call, and not begun it.
  bool only_refused = false;
};

// How long to wait before the next attempt, or nothing when `last` settles the call: it succeeded
// or failed otherwise than UNAVAILABLE, attempts are used up, the server wants no more, or the
// deadline would have passed. `attempts` were made; `jitter` is uniform in [0, 1).
std::optional<absl::Duration> RetryDelay(const RetryPolicy& policy, int attempts,
                                         const AttemptResult& last, absl::Duration time_left,
                                         double jitter);

// Starts one attempt and calls back when it ended, on any thread, perhaps before it returns.
using StartAttempt = std::function<void(absl::AnyInvocable<void(AttemptResult)>)>;

// Attempts until RetryDelay says so, then calls `done` with the status of the last one. A call
// cancelled between attempts is CANCELLED. `timer` must outlive the call.
void RunWithRetries(const RetryPolicy& policy, const CallContext& context, Timer* timer,
                    StartAttempt start, absl::AnyInvocable<void(absl::Status)> done);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_COMMON_RETRY_H_
