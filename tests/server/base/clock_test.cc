// SPDX-License-Identifier: Apache-2.0
// Tests the system's clock, and only what holds on a machine that may stall at any moment.
#include "server/base/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace phasor {
namespace {

TEST(RealClockTest, TellsTheTime) {
  const absl::Time before = absl::Now();
  const absl::Time now = Clock::Real()->Now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, absl::Now());
}

TEST(RealClockTest, WaitEndsAtItsTimeWithoutASignal) {
  Mutex mu;
  CondVar changed;
  MutexLock lock(&mu);
  const absl::Time until = Clock::Real()->Now() + absl::Milliseconds(2);
  while (Clock::Real()->Now() < until) Clock::Real()->Wait(&changed, &mu, until);
  EXPECT_GE(Clock::Real()->Now(), until);
}

}  // namespace
}  // namespace phasor
