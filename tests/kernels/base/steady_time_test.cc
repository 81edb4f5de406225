// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/steady_time.h"

#include <gtest/gtest.h>

namespace phasor {
namespace {

TEST(WallTimeAfterTest, IsByTheWallClock) {
  const auto before = std::chrono::system_clock::now();
  EXPECT_GE(WallTimeAfter(absl::Hours(1)), before + std::chrono::hours(1));
  EXPECT_GE(WallTimeAfter(absl::InfiniteDuration()), before + std::chrono::hours(24));
}

// gRPC takes a time before 1970 for one that never comes.
TEST(WallTimeAfterTest, HasJustPassedAfterAWaitThatIsOver) {
  for (const absl::Duration wait : {-absl::Milliseconds(1), -absl::InfiniteDuration()}) {
    const auto time = WallTimeAfter(wait);
    EXPECT_LT(time, std::chrono::system_clock::now());
    EXPECT_GT(time.time_since_epoch(), std::chrono::hours(24));
  }
}

}  // namespace
}  // namespace phasor
