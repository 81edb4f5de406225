// SPDX-License-Identifier: Apache-2.0
// The steady clock of the system.
#include "server/base/clock.h"

#include "server/base/mutex.h"

namespace phasor {
namespace {

class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return SteadyNow(); }
  void Wait(CondVar* changed, Mutex* mutex, absl::Time until) override {
    changed->WaitFor(mutex, until - Now());
  }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock clock;
  return &clock;
}

}  // namespace phasor
