// SPDX-License-Identifier: Apache-2.0
// Tests the parser of Prometheus' text format.
#include "client/cli/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::kInvalid;
using ::testing::Pair;
using testing::StatusIs;

MetricsPage PageOf(const std::string& text) {
  absl::StatusOr<MetricsPage> page = MetricsPage::Parse(text);
  EXPECT_THAT(page, IsOk()) << text;
  return page.ok() ? *std::move(page) : MetricsPage();
}

double ValueOf(const std::string& text) {
  const MetricsPage page = PageOf("x " + text + "\n");
  return page.Of("x").empty() ? -1 : page.Of("x").begin()->second;
}

TEST(MetricsPageTest, SamplesAreFoundByNameAndLabels) {
  const MetricsPage page = PageOf(
      "# HELP calls_total Calls, by \"path\" {and more\n"
      "# TYPE calls_total counter\n"
      "calls_total{path=\"inline\"} 3\n"
      "calls_total{path=\"queued\",method=\"a/b\"} 4.5\n"
      "\n"
      "  #a comment without a space\n"
      "up 1\n");
  EXPECT_THAT(page.Of("calls_total"),
              ElementsAre(Pair(ElementsAre(Pair("method", "a/b"), Pair("path", "queued")), 4.5),
                          Pair(ElementsAre(Pair("path", "inline")), 3)));
  EXPECT_THAT(page.Of("up"), ElementsAre(Pair(IsEmpty(), 1)));
  EXPECT_THAT(page.Of("down"), IsEmpty());
  EXPECT_EQ(page.all().size(), 2u);
}

TEST(MetricsPageTest, BlanksCommasAndTimesAreWhereTheFormatHasThem) {
  const MetricsPage page = PageOf(
      "\t a:b_1 \t{ x = \"1\" , y=\"2\", } \t 7 \t 1700000000000 \n"
      "b{} 8\n"
      "c{x=\"} 1\"}9 -5\n");
  EXPECT_THAT(page.Of("a:b_1"), ElementsAre(Pair(ElementsAre(Pair("x", "1"), Pair("y", "2")), 7)));
  EXPECT_THAT(page.Of("b"), ElementsAre(Pair(IsEmpty(), 8)));
  EXPECT_THAT(page.Of("c"), ElementsAre(Pair(ElementsAre(Pair("x", "} 1")), 9)));
}

TEST(MetricsPageTest, EscapesStandForCharacters) {
  const MetricsPage page = PageOf("a{b=\"one\\\\two\\\"three\\nfour\",c=\"\"} 1\n");
  EXPECT_THAT(page.Of("a"),
              ElementsAre(Pair(ElementsAre(Pair("b", "one\\two\"three\nfour"), Pair("c", "")), 1)));
}

TEST(MetricsPageTest, ValuesAreAllThatFloatsCanBe) {
  EXPECT_EQ(ValueOf("0.7084440000000001"), 0.7084440000000001);
  EXPECT_EQ(ValueOf("-1.5e-05"), -1.5e-05);
  EXPECT_EQ(ValueOf("+2"), 2);
  EXPECT_EQ(ValueOf("+Inf"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(ValueOf("-Inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(ValueOf("NaN")));
  EXPECT_TRUE(std::isnan(ValueOf("Nan")));  // as prometheus-cpp writes it
}

TEST(MetricsPageTest, WhatIsNotTheFormatIsAnErrorWithItsLine) {
  const struct {
    const char* line;
    const char* message;
  } cases[] = {
      {"a", "value \"\"; must be a number"},
      {"a b", "value \"b\"; must be a number"},
      {"a 1x", "value \"1x\"; must be a number"},
      {"a +-1", "value \"+-1\"; must be a number"},
      {"a 1 2.5", "time \"2.5\"; must be whole milliseconds"},
      {"a 1 2 3", "\"3\" after the time; must be nothing"},
      {"9a 1", "must be the name of a metric"},
      {"{b=\"c\"} 1", "must be the name of a metric"},
      {"a-b 1", "value \"-b\"; must be a number"},
      {"a{b:c=\"d\"} 1", "no = after label b"},
      {"a{=\"d\"} 1", "must be the name of a label"},
      {"a{b} 1", "no = after label b"},
      {"a{b=c} 1", "must be a value in double quotes"},
      {"a{b=\"c} 1", "does not end; must end with a double quote"},
      {"a{b=\"c\\", "escape \\; must be"},
      {"a{b=\"\\t\"} 1", "escape \\t"},
      {"a{b=\"c\" d=\"e\"} 1", "labels go on after b; must be a comma or }"},
      {"a{b=\"c\"", "labels go on after b"},
      {"a{b=\"c\",b=\"d\"} 1", "label b is there twice"},
      {"a{,} 1", "must be the name of a label"},
      {"good 2", "good with these labels is there twice"},
      {"\x1b[2J 1", "\"\\x1b[2J 1\"; must be the name"},
  };
  for (const auto& [line, message] : cases) {
    EXPECT_THAT(
        MetricsPage::Parse(std::string("# one\ngood 1\n") + line + "\nlast 1\n"),
        StatusIs(kInvalid, ::testing::AllOf(::testing::StartsWith("line 3: "), HasSubstr(message))))
        << line;
  }
}

// A number that was cut short would be another number.
TEST(MetricsPageTest, APageThatEndsWithinALineIsRefused) {
  EXPECT_THAT(MetricsPage::Parse("a 1\nb 191"),
              StatusIs(kInvalid, HasSubstr("line 2: does not end")));
  EXPECT_THAT(MetricsPage::Parse(""), IsOk());
}

}  // namespace
}  // namespace phasor::cli
