// SPDX-License-Identifier: Apache-2.0
// Tests positions on the command line.
#include "client/cli/position_flags.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::testing::ElementsAre;

using ::phasor::testing::kInvalid;

// Parses `arguments` and gets the positions; `flags` owns their numbers.
absl::StatusOr<PositionList> Get(PositionFlags& flags, std::vector<std::string> arguments) {
  CLI::App app;
  flags.Add(app, "");
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return flags.Get();
}

TEST(PositionFlagsTest, WrittenIntegersStayExact) {
  PositionFlags flags;
  auto list = Get(flags, {"--positions", "10,-12,9223372036854775807"});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(std::get<PositionTensor>(list->value()).dtype, Dtype::kInt64);
  std::vector<int64_t> numbers(3);
  std::memcpy(numbers.data(), list->bytes().data(), 24);
  EXPECT_THAT(numbers, ElementsAre(10, -12, INT64_MAX));
}

TEST(PositionFlagsTest, OneRealMakesAllReal) {
  PositionFlags flags;
  auto list = Get(flags, {"--positions", "0.37,1"});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(std::get<PositionTensor>(list->value()).dtype, Dtype::kFloat64);
}

TEST(PositionFlagsTest, SlashesSeparateAxes) {
  PositionFlags flags;
  auto list = Get(flags, {"--positions", "0/1,0/2,3/4"});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(std::get<PositionTensor>(list->value()).shape, ElementsAre(3, 2));
}

TEST(PositionFlagsTest, SeveralRangesAreAGrid) {
  PositionFlags flags;
  auto list = Get(flags, {"--range", "0:3", "--range", "0:1:0.25"});
  ASSERT_TRUE(list.ok()) << list.status();
  const PositionGrid& grid = std::get<PositionGrid>(list->value());
  EXPECT_EQ(std::get<IntegerRange>(grid.axes[0]).count, 3);
  EXPECT_EQ(std::get<RealRange>(grid.axes[1]).count, 4);
}

TEST(PositionFlagsTest, RejectsWhatIsNoNumberOrMissing) {
  for (const char* text : {"1,x", "1,,2", "1/2,3", "1 2", "0x10", ","}) {
    PositionFlags flags;
    EXPECT_EQ(Get(flags, {"--positions", text}).status().code(), kInvalid) << text;
  }
  PositionFlags none;
  EXPECT_EQ(Get(none, {}).status().code(), kInvalid);
}

TEST(ParseRangeTest, StopIsExcluded) {
  const std::vector<std::pair<const char*, int64_t>> counts = {
      {"0:5", 5}, {"0:5:2", 3}, {"0:6:2", 3}, {"5:0:-1", 5},  {"5:0:-2", 3},
      {"3:3", 0}, {"5:0", 0},   {"-3:3", 6},  {"0:1:0.3", 4}, {"1:0:-0.5", 2},
  };
  for (const auto& [text, count] : counts) {
    auto range = ParseRange(text, "--range");
    ASSERT_TRUE(range.ok()) << range.status();
    EXPECT_EQ(std::visit([](const auto& r) { return r.count; }, *range), count) << text;
  }
}

TEST(ParseRangeTest, RejectsEndlessAndMalformedRanges) {
  for (const char* text :
       {"", "5", "0:", ":5", "0:5:0", "0:5:0.0", "0:1:nan", "0:inf", "0:1:1e-300", "a:b", "1:2:3:4",
        "-9223372036854775808:9223372036854775807"}) {
    EXPECT_EQ(ParseRange(text, "--range").status().code(), kInvalid) << text;
  }
}

}  // namespace
}  // namespace phasor::cli
