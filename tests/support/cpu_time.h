// SPDX-License-Identifier: Apache-2.0
// Measures how processor time grows with the size of the input.
#ifndef PHASOR_TESTS_SUPPORT_CPU_TIME_H_
#define PHASOR_TESTS_SUPPORT_CPU_TIME_H_

#include <time.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace phasor::testing {

// Seconds of the processor that this thread has taken.
inline double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least that `run` takes in several tries.
inline double LeastSeconds(const std::function<void()>& run) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 7; ++i) {
    const double begin = ThreadSeconds();
    run();
    least = std::min(least, ThreadSeconds() - begin);
  }
  return least;
}

// Most times as long that four times as much may take where time is to be linear. Quadratic would
// be 16, sorting is below 6; the rest is for caches that what is small fits into.
inline constexpr double kMostGrowth = 10;

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_CPU_TIME_H_
