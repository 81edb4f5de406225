// SPDX-License-Identifier: Apache-2.0
// Tests that log lines are valid JSON, whatever they contain.
#include "server/base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

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

// Everything that is in the pipe, which stays open.
std::string Drain(int fd) {
  std::string text;
  char part[4096];
  for (ssize_t got; (got = read(fd, part, sizeof(part))) > 0;) text.append(part, got);
  return text;
}

TEST(LogTest, DoesNotWaitForAReaderAndSaysHowManyLinesWereLost) {
  SetLogLevel(LogLevel::kInfo);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  const int standard_error = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  constexpr int kLines = 5000;  // more than a pipe holds
  for (int i = 0; i < kLines; ++i) Log(LogLevel::kInfo, "a line");
  std::string text = Drain(ends[0]);
  Log(LogLevel::kInfo, "after");
  text += Drain(ends[0]);
  dup2(standard_error, STDERR_FILENO);
  for (const int fd : {ends[0], ends[1], standard_error}) close(fd);

  std::istringstream lines(text);
  int64_t written = 0, lost = 0;
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    last = object["event"];
    if (last == "a line") ++written;
    if (last == "log lines lost") lost += object["lines"].get<int64_t>();
  }
  EXPECT_EQ(last, "after");
  EXPECT_GT(lost, 0);
  EXPECT_EQ(written + lost, kLines);
}

TEST(LogTest, LinesThatAFullDiskCutOffAreCountedAsLost) {
  SetLogLevel(LogLevel::kInfo);
  const testing::TempDir dir;
  const std::string path = dir.path() + "/log";
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  const int standard_error = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(file, STDERR_FILENO), STDERR_FILENO);
  ASSERT_NE(std::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  Log(LogLevel::kInfo, "fits");
  const rlimit full = {std::filesystem::file_size(path) + 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  Log(LogLevel::kInfo, "is cut off");
  Log(LogLevel::kInfo, "is lost");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  Log(LogLevel::kInfo, "after");
  dup2(standard_error, STDERR_FILENO);
  for (const int fd : {file, standard_error}) close(fd);

  std::ifstream text(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(json::parse(lines[0])["event"], "fits");
  EXPECT_FALSE(json::accept(lines[1]));
  EXPECT_EQ(json::parse(lines[2])["event"], "log lines lost");
  EXPECT_EQ(json::parse(lines[2])["lines"], 2);
  EXPECT_EQ(json::parse(lines[3])["event"], "after");
}

}  // namespace
}  // namespace phasor
