// SPDX-License-Identifier: Apache-2.0
// How long callers in a storm wait before they give up: a random time, up to twice what the last
// completed call took. So on any machine about half of the calls are given up.
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
