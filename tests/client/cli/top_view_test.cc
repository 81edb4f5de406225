// SPDX-License-Identifier: Apache-2.0
// Tests the text that `phasor top` draws in windows of different sizes.
#include "client/cli/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace phasor::cli {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TopValues BusyServer() {
  TopValues v = {.elapsed_s = 1, .restarted = false};
  v.version = "0.1.0";
  v.backend = "cpu";
  v.cpu_target = "AVX3";
  v.serving = true;
  v.uptime_s = 754;
  v.cpu_percent = 187.25;
  v.resident_bytes = 35598336;
  v.open_fds = 18;
  v.max_fds = 20000;
  v.calls_per_s = 2378.6;
  v.errors_per_s = 12;
  v.received_bytes_per_s = 522e6;
  v.sent_bytes_per_s = 5.25 * (1 << 20);
  v.inflight_bytes = 3.0 * (1 << 30);
  v.inflight_limit_bytes = 8.0 * (1 << 30);
  v.queued_calls = 7;
  v.waiting_calls = 0;
  v.connections = 64;
  v.connections_refused_per_s = 0.5;
  v.methods = {
      {"ApplyRoPE", 2350.6, 0, "", {305e-6, 2.48e-3}, 521e6, 4.75 * (1 << 20)},
      {"SystemSharedMemoryRegister", 28, 12, "RESOURCE_EXHAUSTED", {0.0123, 1.5}, 1e6, 5e5},
      {"Encode", 0, 0, "", {kNone, kNone}, 0, 0}};
  v.queue = {155e-6, 1.44e-3};
  v.gather = {25e-6, 50e-6};
  v.compute = {0.026, 30};
  v.calls_per_batch = 3.25;
  v.inline_percent = 12.5;
  v.queued_percent = 87.5;
  v.leases = {2, 1073741824};
  v.regions = {0, 0};
  v.tables = {11, 52428800};
  v.plan_cache_hit_percent = kNone;
  return v;
}

std::vector<std::string> LinesOf(const std::string& frame) {
  std::istringstream in(frame);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

size_t LongestLine(const std::string& frame) {
  size_t longest = 0;
  for (const std::string& line : LinesOf(frame)) longest = std::max(longest, line.size());
  return longest;
}

TEST(TopViewTest, AFrameFitsEightyColumns) {
  EXPECT_EQ(FormatTop(BusyServer(), "127.0.0.1:9464", {}),
            R"(phasor 0.1.0  cpu AVX3  SERVING  up 12m 34s  127.0.0.1:9464
processor 187.2 %   resident 33.9 MiB   files open 18 of 20000

calls/s     2.38k   received     498 MiB/s   queued       7   connections     64
errors/s     12.0   sent        5.25 MiB/s   waiting      0   refused/s     0.50
in flight   3.00 GiB of   8.00 GiB  [########............] 37.5 %

METHOD             CALLS/S ERRORS/S MOST OFTEN      P50    P99 MiB/s IN      OUT
ApplyRoPE            2.35k        0               305us 2.48ms      497     4.75
SystemSharedMemor~    28.0     12.0 RESOURCE_EX~ 12.3ms  1.50s     0.95     0.48
Encode                   0        0                   -      -     0.00     0.00

STAGE         P50      P99       MEMORY      COUNT        BYTES
queue       155us   1.44ms       leases          2     1.00 GiB
gather       25us     50us       regions         0          0 B
compute    26.0ms    30.0s       tables         11     50.0 MiB
calls per batch 3.25   inline 12.5 %   queued 87.5 %   plan cache hits -
)");
}

TEST(TopViewTest, WiderWindowsShowWholeNames) {
  const std::string frame = FormatTop(BusyServer(), "127.0.0.1:9464", {.width = 100});
  EXPECT_THAT(frame, HasSubstr("SystemSharedMemoryRegister"));
  EXPECT_THAT(frame, HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_LE(LongestLine(frame), 100u);
}

TEST(TopViewTest, NarrowerWindowsCutLines) {
  for (const int width : {60, 20, 1}) {
    EXPECT_EQ(LongestLine(FormatTop(BusyServer(), "127.0.0.1:9464", {.width = width})),
              static_cast<size_t>(width));
  }
}

TEST(TopViewTest, LowerWindowsLeaveOutIdleMethodsFirst) {
  TopValues values = BusyServer();
  values.methods.resize(9, values.methods[2]);
  EXPECT_EQ(LinesOf(FormatTop(values, "a:1", {})).size(), 23u);
  const std::string frame = FormatTop(values, "a:1", {.height = 17});
  EXPECT_EQ(LinesOf(frame).size(), 17u);
  EXPECT_THAT(frame, HasSubstr("ApplyRoPE"));
  EXPECT_THAT(frame, HasSubstr("\nand 7 more\n"));
  EXPECT_THAT(frame, HasSubstr("calls per batch"));
  EXPECT_THAT(FormatTop(values, "a:1", {.height = 15}), HasSubstr("\nApplyRoPE"));
  EXPECT_EQ(LinesOf(FormatTop(values, "a:1", {.height = 15})).size(), 15u);
  EXPECT_EQ(LinesOf(FormatTop(values, "a:1", {.height = 23})).size(), 23u);
  EXPECT_THAT(FormatTop(values, "a:1", {.height = 23}), Not(HasSubstr("more")));
  EXPECT_EQ(LinesOf(FormatTop(values, "a:1", {.height = 5})).size(), 5u);
}

TEST(TopViewTest, AServerWithoutCallsIsShown) {
  TopValues values = BusyServer();
  values.methods.clear();
  values.serving = false;
  values.restarted = true;
  const std::string frame = FormatTop(values, "a:1", {});
  EXPECT_THAT(frame, HasSubstr("\nno calls yet\n"));
  EXPECT_THAT(frame, StartsWith("phasor 0.1.0  cpu AVX3  NOT SERVING  up 12m 34s, started again"));
}

TEST(TopViewTest, UnknownNumbersAreDashes) {
  TopValues values = BusyServer();
  values.inflight_bytes = values.inflight_limit_bytes = values.uptime_s = kNone;
  values.cpu_percent = values.resident_bytes = values.open_fds = values.max_fds = kNone;
  const std::string frame = FormatTop(values, "a:1", {});
  EXPECT_THAT(frame, HasSubstr("up -  a:1\nprocessor -   resident -   files open - of -\n"));
  EXPECT_THAT(frame, HasSubstr("in flight          - of          -  [....................] -\n"));
}

// A terminal does what such text tells it to.
TEST(TopViewTest, TextOfTheServerHasNoControlCharacters) {
  TopValues values = BusyServer();
  values.version = "\x1b]0;title\x07";
  values.methods[0].name = "a\nb\x80";
  const std::string frame = FormatTop(values, "a:1", {});
  EXPECT_THAT(frame, StartsWith("phasor ?]0;title?"));
  EXPECT_THAT(frame, HasSubstr("\na?b? "));
  for (const std::string& line : LinesOf(frame)) {
    EXPECT_THAT(line, Each(::testing::AllOf(::testing::Ge(' '), ::testing::Le('~')))) << line;
  }
}

TEST(TopViewTest, NumbersKeepThreeDigitsAndTakeUnits) {
  EXPECT_EQ(FormatRate(0), "0");
  EXPECT_EQ(FormatRate(0.25), "0.25");
  EXPECT_EQ(FormatRate(9.996), "10.0");
  EXPECT_EQ(FormatRate(999.9), "999.9");
  EXPECT_EQ(FormatRate(999.96), "1.00k");
  EXPECT_EQ(FormatRate(123456), "123k");
  EXPECT_EQ(FormatRate(999600), "1.00M");
  EXPECT_EQ(FormatSeconds(0), "0us");
  EXPECT_EQ(FormatSeconds(999.6e-6), "1.00ms");
  EXPECT_EQ(FormatSeconds(0.0996), "99.6ms");
  EXPECT_EQ(FormatSeconds(0.9996), "1.00s");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(1048575), "1.00 MiB");
  EXPECT_EQ(FormatBytes(5e15), "4547 TiB");
  EXPECT_EQ(FormatUptime(-3), "0s");
  EXPECT_EQ(FormatUptime(59.9), "59s");
  EXPECT_EQ(FormatUptime(60), "1m 00s");
  EXPECT_EQ(FormatUptime(3600 * 23 + 61), "23h 01m");
  EXPECT_EQ(FormatUptime(86400 * 40 + 3600), "40d 01h");
}

}  // namespace
}  // namespace phasor::cli
