// SPDX-License-Identifier: Apache-2.0
// Retries: attempts of a call until one of them is final. They are above the transport because
// gRPC's own retries do not work for requests over 256 KiB.
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

// The clock and timer of retries; tests pass their own. Threads: any.
class Timer {
 public:
  virtual ~Timer() = default;
  virtual absl::Time Now() = 0;
  // Runs `then` once after `delay`: on this thread before returning, or on another thread.
  virtual void After(absl::Duration delay, absl::AnyInvocable<void()> then) = 0;
};

// The result of one attempt.
struct AttemptResult {
  absl::Status status;
  // When the server wants the next attempt; negative: never.
  std::optional<absl::Duration> pushback;
};

// When and how often a call is retried.
struct RetryPolicy {
  int max_attempts = 1;
  absl::Duration initial_backoff;
  absl::Duration max_backoff;
  // Retry only if the server said when to come back. That means it refused the call and has not
  // begun it.
  bool only_refused = false;
  // Whether a server is connected; connects if not. An attempt after the first waits for it, at
  // most until kReconnectWait after the first one failed. Empty: attempts do not wait.
  std::function<bool()> connected = nullptr;
};

// A server that is replaced is away for some tenths of a second.
inline constexpr absl::Duration kReconnectWait = absl::Seconds(2);

// How long to wait before the next attempt. nullopt if `last` is final: it succeeded or failed with
// another code than UNAVAILABLE, the attempts are used up, the server wants no more of them, or the
// deadline would pass during the wait. `attempts` is how many were made; `jitter` is uniform in [0,
// 1).
std::optional<absl::Duration> RetryDelay(const RetryPolicy& policy, int attempts,
                                         const AttemptResult& last, absl::Duration time_left,
                                         double jitter);

// Starts one attempt. Calls back when it has ended, on any thread, possibly before it returns.
using StartAttempt = std::function<void(absl::AnyInvocable<void(AttemptResult)>)>;

// Makes attempts until RetryDelay says that one is final, then calls `done` with its status. A call
// that is cancelled between attempts fails with CANCELLED. One whose deadline passes there fails as
// its last attempt did. `timer` must outlive the call.
void RunWithRetries(const RetryPolicy& policy, const CallContext& context, Timer* timer,
                    StartAttempt start, absl::AnyInvocable<void(absl::Status)> done);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_COMMON_RETRY_H_
