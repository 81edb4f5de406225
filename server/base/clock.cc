// SPDX-License-Identifier: Apache-2.0
// The steady clock of the system.
#include "server/base/clock.h"

#include <algorithm>

#include "server/base/mutex.h"

namespace phasor {
namespace {

constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);  // no sum overflows

class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return SteadyNow(); }
  void Wait(CondVar* changed, Mutex* mutex, absl::Time until) override {
    changed->WaitFor(mutex, until - Now());
  }
};

}  // namespace

absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

std::chrono::system_clock::time_point WallTimeAfter(absl::Duration wait) {
  return std::chrono::system_clock::now() +
         absl::ToChronoNanoseconds(std::clamp(wait, absl::ZeroDuration(), kLongestWait));
}

Clock* Clock::Real() {
  static RealClock clock;
  return &clock;
}

}  // namespace phasor
