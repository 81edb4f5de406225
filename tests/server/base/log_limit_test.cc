// SPDX-License-Identifier: Apache-2.0
// Tests the limit on lines per second, and the count of lines left out.
#include "server/base/log_limit.h"

#include <gtest/gtest.h>

namespace phasor {
namespace {

TEST(LogLimitTest, CountsWhatWasLeftOut) {
  LogLimit limit(2);
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(limit.Admit(start), 0);
  EXPECT_EQ(limit.Admit(start), 0);
  EXPECT_EQ(limit.Admit(start), std::nullopt);
  EXPECT_EQ(limit.Admit(start + absl::Milliseconds(999)), std::nullopt);
  EXPECT_EQ(limit.Admit(start + absl::Seconds(1)), 2);
  EXPECT_EQ(limit.Admit(start + absl::Seconds(1)), 0);
}

TEST(LogLimitTest, AClockThatIsSetBackDoesNotSilenceIt) {
  LogLimit limit(1);
  const absl::Time now = absl::FromUnixSeconds(1000000);
  EXPECT_TRUE(limit.Admit(now).has_value());
  EXPECT_FALSE(limit.Admit(now).has_value());
  EXPECT_TRUE(limit.Admit(now - absl::Hours(1)).has_value());
}

}  // namespace
}  // namespace phasor
