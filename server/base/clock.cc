// SPDX-License-Identifier: Apache-2.0
// The clock of the system.
#include "server/base/clock.h"

#include "absl/time/clock.h"
#include "server/base/mutex.h"

namespace phasor {
namespace {

class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  void Wait(CondVar* changed, Mutex* mutex, absl::Time until) override {
    changed->WaitUntil(mutex, until);
  }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock clock;
  return &clock;
}

}  // namespace phasor
