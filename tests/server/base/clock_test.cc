// SPDX-License-Identifier: Apache-2.0
// Tests the system's clock, and only what holds on a machine that may stall at any moment.
#include "server/base/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace phasor {
namespace {

TEST(RealClockTest, IsTheSteadyClock) {
  const auto steady = [] {
    return absl::UnixEpoch() +
           absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  };
  const absl::Time before = steady();
  const absl::Time now = Clock::Real()->Now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, steady());
}

TEST(RealClockTest, WaitEndsAtItsTimeWithoutASignal) {
  Mutex mu;
  CondVar changed;
  MutexLock lock(&mu);
  const absl::Time until = Clock::Real()->Now() + absl::Milliseconds(2);
  while (Clock::Real()->Now() < until) Clock::Real()->Wait(&changed, &mu, until);
  EXPECT_GE(Clock::Real()->Now(), until);
}

TEST(RealClockTest, WaitOfAnyLengthEndsWithASignal) {
  for (const absl::Time until :
       {absl::InfiniteFuture(), SteadyNow() + absl::Hours(24 * 365 * 290)}) {
    Mutex mu;
    CondVar changed;
    bool woken = false;
    MutexLock lock(&mu);
    std::thread other([&] {
      MutexLock in_other(&mu);
      woken = true;
      changed.Signal();
    });
    while (!woken) Clock::Real()->Wait(&changed, &mu, until);
    mu.Unlock();
    other.join();
    mu.Lock();
  }
}

}  // namespace
}  // namespace phasor
