// SPDX-License-Identifier: Apache-2.0
// Log lines are JSON, whatever is in them.
#include "server/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace phasor {
namespace {

using nlohmann::json;

constexpr absl::Time kTime = absl::UnixEpoch();

TEST(LogLineTest, HasTimeLevelEventAndFields) {
  const json line = json::parse(LogLine(kTime + absl::Microseconds(5), LogLevel::kWarn, "serving",
                                        {{"listeners", std::vector<std::string>{"a:1", "b:2"}},
                                         {"count", int64_t{-7}},
                                         {"seconds", 0.25},
                                         {"ok", true},
                                         {"why", std::string("none")}}));
  EXPECT_EQ(line["time"], "1970-01-01T00:00:00.000005Z");
  EXPECT_EQ(line["level"], "warn");
  EXPECT_EQ(line["event"], "serving");
  EXPECT_EQ(line["listeners"], json({"a:1", "b:2"}));
  EXPECT_EQ(line["count"], -7);
  EXPECT_EQ(line["seconds"], 0.25);
  EXPECT_EQ(line["ok"], true);
  EXPECT_EQ(line["why"], "none");
}

TEST(LogLineTest, EscapesEveryByte) {
  std::string text;
  for (int c = 0; c < 256; ++c) text.push_back(static_cast<char>(c));
  const std::string line = LogLine(kTime, LogLevel::kInfo, text, {{text, text}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const std::string event = json::parse(line)["event"];
  EXPECT_EQ(event.substr(0, 128), text.substr(0, 128));
}

TEST(LogLineTest, KeepsUtf8AndReplacesWhatIsNot) {
  const auto event = [](std::string_view text) -> std::string {
    return json::parse(LogLine(kTime, LogLevel::kInfo, text, {}))["event"];
  };
  EXPECT_EQ(event("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(event("\xC3"), bad);
  EXPECT_EQ(event("\xC0\xAF"), bad + bad);
  EXPECT_EQ(event("\xED\xA0\x80"), bad + bad + bad);
  EXPECT_EQ(event("\xF4\x90\x80\x80"), bad + bad + bad + bad);
}

TEST(LogLineTest, NumbersThatJsonLacksAreNull) {
  const json line = json::parse(
      LogLine(kTime, LogLevel::kInfo, "x", {{"v", std::numeric_limits<double>::infinity()}}));
  EXPECT_TRUE(line["v"].is_null());
}

TEST(LogTest, WritesOnlyWhatIsAtOrAboveTheLevel) {
  ::testing::internal::CaptureStderr();
  SetLogLevel(LogLevel::kWarn);
  Log(LogLevel::kInfo, "quiet");
  Log(LogLevel::kWarn, "loud");
  SetLogLevel(LogLevel::kOff);
  Log(LogLevel::kError, "silent");
  SetLogLevel(LogLevel::kInfo);
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(json::parse(written)["event"], "loud");
}

TEST(LogTest, KnowsTheLevelNames) {
  EXPECT_EQ(LogLevelOf("debug"), LogLevel::kDebug);
  EXPECT_EQ(LogLevelOf("off"), LogLevel::kOff);
  EXPECT_EQ(LogLevelOf("loud"), LogLevel::kInfo);
}

}  // namespace
}  // namespace phasor
