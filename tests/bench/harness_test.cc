// SPDX-License-Identifier: Apache-2.0
// Tests the benchmark harness: medians, ratios, turns, warm runs, targets and data.
#include "bench/harness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/math/convert.h"

namespace phasor::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HarnessTest, MedianIsTheMiddleOfAnyOrder) {
  EXPECT_EQ(Median({3, 100, 1}), 3);
  EXPECT_EQ(Median({4, 1, 2, 100}), 3);
}

TEST(HarnessTest, RatioIsHigherWhenTheSubjectIsBetter) {
  EXPECT_DOUBLE_EQ(RateRow({}, 30, 20).ratio, 1.5);  // GB/s
  EXPECT_DOUBLE_EQ(CostRow({}, 30, 60).ratio, 2.0);  // microseconds
}

// Runs of `count` candidates, round by round, without those that see how long a run takes.
std::vector<std::string> RoundsOf(int count, int rounds) {
  std::string order;
  std::vector<Candidate> candidates;
  for (int i = 0; i < count; ++i) {
    candidates.push_back({[&order, i] { order += static_cast<char>('a' + i); }, Cache::kAny});
  }
  Arguments arguments;
  arguments.full_rounds = rounds;
  MedianSeconds(arguments, candidates);
  std::vector<std::string> of_round;
  for (size_t at = static_cast<size_t>(count); at < order.size();
       at += static_cast<size_t>(count)) {
    of_round.push_back(order.substr(at, static_cast<size_t>(count)));
  }
  return of_round;
}

TEST(HarnessTest, RoundRunsEachCandidateOnce) {
  EXPECT_THAT(RoundsOf(2, 4), ElementsAre("ab", "ba", "ba", "ab"));
  for (std::string round : RoundsOf(5, 11)) {
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round, "abcde");
  }
}

TEST(HarnessTest, EachCandidateFollowsEachOtherOneEquallyOften) {
  for (int count = 2; count <= 6; ++count) {
    std::map<std::string, int> pairs;
    for (const std::string& round : RoundsOf(count, 2 * count)) {
      for (size_t i = 1; i < round.size(); ++i) ++pairs[round.substr(i - 1, 2)];
    }
    EXPECT_EQ(pairs.size(), count * (count - 1));
    for (const auto& [pair, times] : pairs) EXPECT_EQ(times, 2) << pair << " of " << count;
  }
}

TEST(HarnessTest, WarmRunsAreRepeatedUntimedFirst) {
  int runs = 0;
  Arguments arguments;
  arguments.quick = true;
  MedianSeconds(arguments, {{[&] { ++runs; }, Cache::kWarm}});
  EXPECT_EQ(runs, 2 * (1 + arguments.rounds()));
}

TEST(HarnessTest, MissedTargetsAreShownAndWritten) {
  Arguments arguments;
  arguments.json_path = ::testing::TempDir() + "/rows.json";
  ::testing::internal::CaptureStdout();
  Report report("bench_test", arguments, "AVX2");
  report.Add(RateRow({.name = "slow"}, 89, 100, 0.9));
  report.Add(RateRow({.name = "fast"}, 90, 100, 0.9));
  report.Add(RateRow({.name = "free"}, 1, 100));
  EXPECT_EQ(report.Finish(), 0);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(printed, HasSubstr(">= 0.90 MISS"));
  EXPECT_THAT(printed,
              HasSubstr("MISS  slow   : 0.890 of , target 0.9\n1 of 2 targets met, 1 missed"));

  std::ifstream file(arguments.json_path);
  const nlohmann::json rows = nlohmann::json::parse(file);
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0]["met"], false);
  EXPECT_EQ(rows[0]["target"], 0.9);
  EXPECT_EQ(rows[1]["met"], true);
  EXPECT_TRUE(rows[2]["target"].is_null());
  EXPECT_EQ(rows[0]["machine"]["isa"], "AVX2");
}

TEST(HarnessTest, RowWithinATenthOfItsFloorMeetsATargetBeyondIt) {
  const auto wanted = [](double target, double most) {
    Row row = RateRow({}, 1, 1, target);
    row.most = most;
    return row.wanted();
  };
  EXPECT_DOUBLE_EQ(wanted(2, 1.5), 1.35);
  EXPECT_DOUBLE_EQ(wanted(2, 3), 2);  // a floor farther away leaves the target as it is

  ::testing::internal::CaptureStdout();
  Report report("bench_test", {}, "AVX2");
  for (const double ratio : {1.34, 1.36}) {
    Row row = RateRow({.name = "row"}, ratio, 1, 2);
    row.most = 1.5;
    report.Add(row);
  }
  report.Finish();
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(printed, HasSubstr("1.340  >= 2.00 (floor 1.50) MISS"));
  EXPECT_THAT(printed, HasSubstr("1.360  >= 2.00 (floor 1.50) met"));
  EXPECT_THAT(printed, HasSubstr("row   : 1.340 of , target 1.35\n1 of 2 targets met, 1 missed"));
}

TEST(HarnessTest, DataIsNeverZeroOrSubnormal) {
  const Memory memory(int64_t{2} << 20);
  FillNormal(Dtype::kFloat16, memory);
  const auto* bits = reinterpret_cast<const uint16_t*>(memory.data());
  double sum_of_squares = 0;
  for (int64_t i = 0; i < memory.size() / 2; ++i) {
    const float value = FloatFromFloat16(bits[i]);
    ASSERT_GE(std::abs(value), 0x1p-14f) << i;  // the least normal float16
    sum_of_squares += value * value;
  }
  EXPECT_NEAR(sum_of_squares / (static_cast<double>(memory.size()) / 2), 1.0, 0.05);
}

}  // namespace
}  // namespace phasor::bench
