// SPDX-License-Identifier: Apache-2.0
// Tests the report of `phasor bench` as JSON and as a table.
#include "client/cli/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phasor::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchReport Rotations() {
  return {.task = {.rotary = true,
                   .tensor = {Dtype::kBFloat16, {5, 32, 100}, {}},
                   .tensor_bytes = 32000},
          .server = "host:1",
          .concurrency = 7,
          .phasor = {.succeeded = 4,
                     .elapsed = absl::Seconds(2),
                     .latencies = {0.004f, 0.001f, 0.002f, 0.003f}}};
}

TEST(BenchReportTest, NumbersAreThoseOfTheLoad) {
  BenchReport report = Rotations();
  const auto json = ToJson(report);
  EXPECT_EQ(json["method"], "ApplyRoPE");
  EXPECT_EQ(json["shape"], nlohmann::json({5, 32, 100}));
  EXPECT_EQ(json["bytes_per_call"], 64000);
  EXPECT_EQ(json["phasor"]["calls"], 4);
  EXPECT_EQ(json["phasor"]["calls_per_second"], 2.0);
  EXPECT_EQ(json["phasor"]["bytes_per_second"], 128000.0);
  EXPECT_FLOAT_EQ(json["phasor"]["p50_ms"].get<float>(), 2);
  EXPECT_FLOAT_EQ(json["phasor"]["max_ms"].get<float>(), 4);
  EXPECT_TRUE(json["phasor"]["errors"].empty());
  EXPECT_FALSE(json.contains("echo"));
  EXPECT_FALSE(json.contains("rate"));
  const std::string text = FormatBenchReport(json);
  EXPECT_THAT(text, HasSubstr("ApplyRoPE of [5,32,100] BFLOAT16, UNARY, host:1, 7 at a time"));
  EXPECT_THAT(text, HasSubstr("2.000"));
  EXPECT_THAT(text, Not(HasSubstr("bare wire")));

  report.task.shared = true;
  EXPECT_THAT(FormatBenchReport(ToJson(report)), HasSubstr("BFLOAT16 in shared memory, UNARY"));
}

TEST(BenchReportTest, TheBareWireStandsBesideIt) {
  BenchReport report = Rotations();
  report.echo = LoadResult{.succeeded = 16, .elapsed = absl::Seconds(2)};
  const auto json = ToJson(report);
  EXPECT_EQ(json["ratio"], 0.25);
  EXPECT_THAT(FormatBenchReport(json),
              HasSubstr("phasor makes 0.25 of the calls of the bare wire"));
}

TEST(BenchReportTest, ErrorsAndUnsentCallsAreSaid) {
  BenchReport report = Rotations();
  report.rate = 10;
  report.phasor.unsent = 3;
  report.phasor.errors[absl::StatusCode::kUnavailable] = {2, "server: no room"};
  const auto json = ToJson(report);
  EXPECT_EQ(json["rate"], 10.0);
  EXPECT_EQ(json["phasor"]["errors"][0]["code"], "UNAVAILABLE");
  EXPECT_EQ(json["phasor"]["errors"][0]["count"], 2);
  const std::string text = FormatBenchReport(json);
  EXPECT_THAT(text, HasSubstr("phasor: 2 x UNAVAILABLE, first: server: no room\n"));
  EXPECT_THAT(text, HasSubstr("phasor: 3 calls were due and never sent"));
}

}  // namespace
}  // namespace phasor::cli
