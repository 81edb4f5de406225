// SPDX-License-Identifier: Apache-2.0
// How long callers of a storm wait before they give up: at random, up to twice of what the last
// call took that was not given up. So about as many calls end one way as the other, on any machine.
#ifndef PHASOR_TESTS_SUPPORT_PATIENCE_H_
#define PHASOR_TESTS_SUPPORT_PATIENCE_H_

#include <atomic>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace phasor::testing {

// Threads: any.
class Patience {
 public:
  // Whether the `i`-th call is not to be given up.
  static bool IsEndless(int i) { return i % 8 == 0; }
  // What such a call took.
  void Took(absl::Duration time) { microseconds_ = absl::ToInt64Microseconds(time); }
  // Of any other.
  absl::Duration Draw(std::mt19937& random) const {
    return absl::Microseconds(std::uniform_int_distribution<int64_t>(0, 2 * microseconds_)(random));
  }

 private:
  std::atomic<int64_t> microseconds_ = 1000;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_PATIENCE_H_
