// SPDX-License-Identifier: Apache-2.0
// Tests the page in the OpenMetrics format. tests/deploy/dashboard_test.py has a real Prometheus
// read it.
#include "server/telemetry/open_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace phasor::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using ::testing::EndsWith;
using ::testing::HasSubstr;

Exemplar None(const MetricFamily&, const ClientMetric&, size_t) { return {}; }

TEST(OpenMetricsTest, CountersAreNamedWithoutTotalAndThePageHasAnEnd) {
  prometheus::Registry registry;
  prometheus::BuildCounter()
      .Name("calls_total")
      .Help("a \"b\\\"")
      .Register(registry)
      .Add({{"k", "v"}})
      .Increment(3);
  prometheus::BuildGauge().Name("bytes").Help("c").Register(registry).Add({}).Set(0.25);
  const std::string page = OpenMetricsText(registry.Collect(), None);
  EXPECT_THAT(page, HasSubstr("# HELP calls a \\\"b\\\\\\\"\n"
                              "# TYPE calls counter\ncalls_total{k=\"v\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE bytes gauge\nbytes 0.25\n"));
  EXPECT_THAT(page, EndsWith("\n# EOF\n"));
}

TEST(OpenMetricsTest, CounterWithAnotherNameIsUnknown) {
  prometheus::Registry registry;
  prometheus::BuildCounter().Name("calls").Help("").Register(registry).Add({}).Increment();
  EXPECT_THAT(OpenMetricsText(registry.Collect(), None),
              HasSubstr("# TYPE calls unknown\ncalls 1\n"));
}

TEST(OpenMetricsTest, SamplesAreThoseOfTheTextFormat) {
  prometheus::Registry registry;
  auto& family = prometheus::BuildHistogram().Name("seconds").Help("h").Register(registry);
  family.Add({{"m", "a\"b"}}, prometheus::Histogram::BucketBoundaries{5e-5, 0.01, 1}).Observe(0.3);
  const auto samples = [](const std::string& page) {
    std::vector<std::string> lines;
    for (const absl::string_view line : absl::StrSplit(page, '\n', absl::SkipEmpty())) {
      if (line[0] != '#') lines.emplace_back(line);
    }
    return lines;
  };
  EXPECT_EQ(samples(OpenMetricsText(registry.Collect(), None)),
            samples(prometheus::TextSerializer().Serialize(registry.Collect())));
}

TEST(OpenMetricsTest, ExemplarsAreAtTheBucketsOfTheirSeries) {
  prometheus::Registry registry;
  auto& family = prometheus::BuildHistogram().Name("seconds").Help("h").Register(registry);
  const prometheus::Histogram::BucketBoundaries bounds = {0.1, 1};
  family.Add({{"m", "one"}}, bounds).Observe(0.5);
  family.Add({{"m", "two"}}, bounds).Observe(5);
  const auto find = [](const MetricFamily& of, const ClientMetric& metric, size_t bucket) {
    const bool has = of.name == "seconds" && metric.label[0].value == "two" && bucket == 2;
    return has ? Exemplar{"ab", 5, absl::FromUnixMillis(1500)} : Exemplar{};
  };
  const std::string page = OpenMetricsText(registry.Collect(), find);
  EXPECT_THAT(page,
              HasSubstr("seconds_bucket{m=\"two\",le=\"+Inf\"} 1 # {trace_id=\"ab\"} 5 1.500\n"));
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(page, "trace_id")).size(), 2);
}

TEST(OpenMetricsTest, OnlyReadersThatAskForItGetIt) {
  EXPECT_TRUE(TakesOpenMetrics("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"));
  EXPECT_FALSE(TakesOpenMetrics("text/plain"));
  EXPECT_FALSE(TakesOpenMetrics(""));
}

}  // namespace
}  // namespace phasor::telemetry
