// SPDX-License-Identifier: Apache-2.0
// Waits for an effect in another process or thread.
#ifndef PHASOR_TESTS_SUPPORT_EVENTUALLY_H_
#define PHASOR_TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace phasor::testing {

// Whether `condition` becomes true within a time that is only reached when something hangs.
template <typename Condition>
bool Eventually(Condition condition, absl::Duration time = absl::Minutes(1)) {
  const absl::Time deadline = absl::Now() + time;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_EVENTUALLY_H_
