// SPDX-License-Identifier: Apache-2.0
// Tests only what holds on a machine that may stall at any moment.
#include "server/base/stop_signal.h"

#include <gtest/gtest.h>

#include <thread>

namespace phasor {
namespace {

TEST(StopSignalTest, WaitsForItsTimeUnlessItIsStopped) {
  StopSignal stop;
  const absl::Time until = SteadyNow() + absl::Milliseconds(2);
  EXPECT_FALSE(stop.WaitFor(absl::Milliseconds(2)));
  EXPECT_GE(SteadyNow(), until);
  EXPECT_FALSE(stop.WaitFor(-absl::Seconds(1)));
  stop.Stop();
  EXPECT_TRUE(stop.WaitFor(absl::InfiniteDuration()));
}

TEST(StopSignalTest, AWaitThatGoesOnEnds) {
  StopSignal stop;
  std::thread other([&] { stop.Stop(); });
  EXPECT_TRUE(stop.WaitFor(absl::InfiniteDuration()));
  other.join();
}

}  // namespace
}  // namespace phasor
