// SPDX-License-Identifier: Apache-2.0
// Tests sizes, durations and switches.
#include "server/config/option_values.h"

#include <gtest/gtest.h>

#include <optional>

namespace phasor {
namespace {

TEST(ParseBytesTest, ReadsUnits) {
  EXPECT_EQ(ParseBytes("0"), 0);
  EXPECT_EQ(ParseBytes("65536"), 65536);
  EXPECT_EQ(ParseBytes("64KiB"), 65536);
  EXPECT_EQ(ParseBytes("3MiB"), 3 << 20);
  EXPECT_EQ(ParseBytes("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(ParseBytes("1TiB"), int64_t{1} << 40);
  EXPECT_EQ(ParseBytes("9223372036854775807"), INT64_MAX);
}

TEST(ParseBytesTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "-1", "1.5MiB", "1MB", "KiB", "1K", "9223372036854775808",
                           "9007199254740992KiB", "8388608TiB", "0x10"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(FormatBytesTest, IsReadBack) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1536},
                              (int64_t{16} << 20) - 1, int64_t{2047} << 20, int64_t{8} << 30}) {
    EXPECT_EQ(ParseBytes(FormatBytes(bytes)), bytes);
  }
  EXPECT_EQ(FormatBytes(4 << 20), "4MiB");
}

TEST(ParseTimeTest, ReadsUnits) {
  EXPECT_EQ(ParseTime("250ms"), absl::Milliseconds(250));
  EXPECT_EQ(ParseTime("1h30m"), absl::Minutes(90));
  EXPECT_EQ(ParseTime("0"), absl::ZeroDuration());
}

TEST(ParseTimeTest, RefusesNumbersWithoutUnitAndInfinity) {
  for (const char* text : {"", "10", "inf", "-inf", "10 s", "s"}) {
    EXPECT_EQ(ParseTime(text), std::nullopt) << text;
  }
}

TEST(ParseTimeTest, ReadsWhatAbseilWrites) {
  for (const absl::Duration time : {absl::ZeroDuration(), absl::Milliseconds(250), absl::Minutes(5),
                                    absl::Hours(24) + absl::Seconds(1)}) {
    EXPECT_EQ(ParseTime(absl::FormatDuration(time)), time);
  }
}

TEST(ParseModeTest, ReadsOctalPermissionsOnly) {
  EXPECT_EQ(ParseMode("660"), 0660);
  EXPECT_EQ(ParseMode("0600"), 0600);
  EXPECT_EQ(ParseMode("0000"), 0);
  for (const char* text : {"", "66", "00660", "0668", "1777", "-660", "+660", "rw-", "0x1"}) {
    EXPECT_EQ(ParseMode(text), std::nullopt) << text;
  }
}

TEST(ParseSwitchTest, ReadsTheUsualWords) {
  for (const char* text : {"true", "1", "on", "yes"}) EXPECT_EQ(ParseSwitch(text), true) << text;
  for (const char* text : {"false", "0", "off", "no"}) EXPECT_EQ(ParseSwitch(text), false) << text;
  EXPECT_EQ(ParseSwitch("maybe"), std::nullopt);
}

}  // namespace
}  // namespace phasor
