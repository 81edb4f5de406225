// SPDX-License-Identifier: Apache-2.0
// So many lines a second, and how many more there were.
#include "server/security/log_limit.h"

#include <gtest/gtest.h>

namespace phasor::security {
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

}  // namespace
}  // namespace phasor::security
