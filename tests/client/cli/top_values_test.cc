// SPDX-License-Identifier: Apache-2.0
// Tests rates, quantiles and restarts computed from two metrics pages.
#include "client/cli/top_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace phasor::cli {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::IsNan;

constexpr double kInf = std::numeric_limits<double>::infinity();

MetricsPage Parsed(const std::string& text) {
  absl::StatusOr<MetricsPage> page = MetricsPage::Parse(text);
  EXPECT_TRUE(page.ok()) << page.status();
  return page.ok() ? *std::move(page) : MetricsPage();
}

const std::string kBuild =
    "phasor_build_info{version=\"1.2.3\",backend=\"cpu\",cpu_target=\"AVX2\"} 1\n";

// Of a method and code, with two buckets.
std::string Calls(const std::string& method, const std::string& code, int to_1ms, int to_10ms,
                  int all, int received, int sent) {
  const std::string labels = "grpc_method=\"" + method + "\",grpc_status=\"" + code + "\"";
  const std::string name = "grpc_server_call_duration_seconds";
  const auto bucket = [&](const std::string& bound, int count) {
    return name + "_bucket{" + labels + ",le=\"" + bound + "\"} " + std::to_string(count) + "\n";
  };
  const auto bytes = [&](const std::string& way, int sum) {
    return "grpc_server_call_" + way + "_total_compressed_message_size_bytes_sum{" + labels + "} " +
           std::to_string(sum) + "\n";
  };
  return bucket("0.001", to_1ms) + bucket("0.01", to_10ms) + bucket("+Inf", all) + name +
         "_count{" + labels + "} " + std::to_string(all) + "\n" + bytes("rcvd", received) +
         bytes("sent", sent);
}

std::string Started(const std::string& method, int calls) {
  return "grpc_server_call_started_total{grpc_method=\"" + method + "\"} " + std::to_string(calls) +
         "\n";
}

// Expected values are Prometheus 2.42's, of histogram_quantile over the same buckets.
TEST(HistogramQuantileTest, IsThatOfPrometheus) {
  const Buckets buckets = {{0.05, 10}, {0.1, 30}, {0.25, 90}, {kInf, 100}};
  EXPECT_THAT(HistogramQuantile(0.05, buckets), DoubleEq(0.025));  // the first begins at 0
  EXPECT_THAT(HistogramQuantile(0.1, buckets), DoubleEq(0.05));    // a bound belongs below
  EXPECT_THAT(HistogramQuantile(0.5, buckets), DoubleNear(0.15, 1e-15));
  EXPECT_THAT(HistogramQuantile(0.9, buckets), DoubleEq(0.25));
  EXPECT_THAT(HistogramQuantile(0.99, buckets), DoubleEq(0.25));  // nobody knows how far beyond
}

TEST(HistogramQuantileTest, EmptyBucketsAreSkipped) {
  const Buckets buckets = {{1, 0}, {2, 0}, {4, 8}, {8, 8}, {kInf, 8}};
  EXPECT_THAT(HistogramQuantile(0.5, buckets), DoubleEq(3));
  EXPECT_THAT(HistogramQuantile(0.99, buckets), DoubleNear(3.98, 1e-15));
}

TEST(HistogramQuantileTest, OfNothingThereIsNone) {
  EXPECT_THAT(HistogramQuantile(0.5, {}), IsNan());
  EXPECT_THAT(HistogramQuantile(0.5, {{1, 0}, {kInf, 0}}), IsNan());
  EXPECT_THAT(HistogramQuantile(0.5, {{kInf, 5}}), IsNan());       // no bound is known
  EXPECT_THAT(HistogramQuantile(0.5, {{1, 5}, {2, 5}}), IsNan());  // is not whole
}

TEST(HistogramQuantileTest, ABucketThatEndsAtZeroIsZero) {
  EXPECT_THAT(HistogramQuantile(0.5, {{0, 6}, {1, 10}, {kInf, 10}}), DoubleEq(0));
}

TEST(CompareMetricsTest, RatesAreOfWhatChanged) {
  const MetricsPage before = Parsed(kBuild + Started("p.S/Encode", 110) +
                                    Calls("p.S/Encode", "OK", 60, 100, 100, 1000, 5000) +
                                    "process_cpu_seconds_total 3\n"
                                    "phasor_connections_refused_total 5\n");
  const MetricsPage now = Parsed(kBuild + Started("p.S/Encode", 170) +
                                 Calls("p.S/Encode", "OK", 70, 140, 140, 3000, 9000) +
                                 Calls("p.S/Encode", "UNAVAILABLE", 6, 6, 6, 400, 0) +
                                 Calls("p.S/Encode", "INTERNAL", 2, 4, 4, 0, 0) +
                                 "process_cpu_seconds_total 5.5\n"
                                 "phasor_connections_refused_total 8\n");
  const TopValues values = CompareMetrics(before, now, 2, 0);
  EXPECT_FALSE(values.restarted);
  ASSERT_EQ(values.methods.size(), 1u);
  const MethodValues& encode = values.methods[0];
  EXPECT_EQ(encode.name, "Encode");
  EXPECT_THAT(encode.calls_per_s, DoubleEq(25));
  EXPECT_THAT(encode.errors_per_s, DoubleEq(5));
  EXPECT_EQ(encode.most_frequent_error, "UNAVAILABLE");
  EXPECT_THAT(encode.received_bytes_per_s, DoubleEq(1200));
  EXPECT_THAT(encode.sent_bytes_per_s, DoubleEq(2000));
  // 18 calls to 1 ms, 50 to 10 ms, of any code.
  EXPECT_THAT(encode.duration.p50_s, DoubleNear(0.001 + 0.009 * (25 - 18) / 32, 1e-12));
  EXPECT_THAT(encode.duration.p99_s, DoubleNear(0.001 + 0.009 * (49.5 - 18) / 32, 1e-12));
  EXPECT_THAT(values.cpu_percent, DoubleEq(125));
  EXPECT_THAT(values.connections_refused_per_s, DoubleEq(1.5));
  EXPECT_THAT(values.calls_per_s, DoubleEq(25));
  EXPECT_THAT(values.errors_per_s, DoubleEq(5));
}

TEST(CompareMetricsTest, MethodsAreTheBusiestFirstAndTotalsTheirSum) {
  const MetricsPage now = Parsed(
      kBuild + Started("p.S/Idle", 1) + Started("p.S/Quiet", 2) + Started("q.T/Busy", 40) +
      Calls("p.S/Quiet", "OK", 2, 2, 2, 10, 20) + Calls("q.T/Busy", "OK", 40, 40, 40, 100, 200));
  const TopValues values = CompareMetrics(MetricsPage(), now, 2, 0);
  ASSERT_EQ(values.methods.size(), 3u);
  EXPECT_EQ(values.methods[0].name, "Busy");
  EXPECT_EQ(values.methods[1].name, "Quiet");
  EXPECT_EQ(values.methods[2].name, "Idle");  // its first call is under way
  EXPECT_EQ(values.methods[2].calls_per_s, 0);
  EXPECT_THAT(values.methods[2].duration.p50_s, IsNan());
  EXPECT_THAT(values.calls_per_s, DoubleEq(21));
  EXPECT_THAT(values.received_bytes_per_s, DoubleEq(55));
  EXPECT_THAT(values.sent_bytes_per_s, DoubleEq(110));
}

// Some counters of the new process are ahead of the old one's already.
TEST(CompareMetricsTest, AServerThatStartedAgainCountsFromZero) {
  const MetricsPage before =
      Parsed(kBuild + Started("p.S/Encode", 9) + Calls("p.S/Encode", "OK", 9, 9, 9, 90, 90) +
             "process_cpu_seconds_total 50\nphasor_connections_refused_total 2\n");
  const MetricsPage now =
      Parsed(kBuild + Started("p.S/Encode", 30) + Calls("p.S/Encode", "OK", 10, 30, 30, 300, 600) +
             "process_cpu_seconds_total 2\nphasor_connections_refused_total 4\n");
  const TopValues values = CompareMetrics(before, now, 2, 0);
  EXPECT_TRUE(values.restarted);
  EXPECT_THAT(values.calls_per_s, DoubleEq(15));
  EXPECT_THAT(values.received_bytes_per_s, DoubleEq(150));
  EXPECT_THAT(values.cpu_percent, DoubleEq(100));
  EXPECT_THAT(values.connections_refused_per_s, DoubleEq(2));
  EXPECT_THAT(values.methods[0].duration.p50_s, DoubleNear(0.001 + 0.009 * 5 / 20, 1e-12));
}

TEST(CompareMetricsTest, ACounterThatIsGoneIsAnotherProcessToo) {
  const MetricsPage before =
      Parsed(kBuild + Started("p.S/Encode", 1) + "process_cpu_seconds_total 1\n");
  const MetricsPage now = Parsed(kBuild + "process_cpu_seconds_total 4\n");
  EXPECT_TRUE(CompareMetrics(before, now, 1, 0).restarted);
  EXPECT_THAT(CompareMetrics(before, now, 1, 0).cpu_percent, DoubleEq(400));
}

TEST(CompareMetricsTest, AGaugeThatFallsIsNoRestart) {
  const MetricsPage before = Parsed(kBuild + "phasor_inflight_bytes 5\nphasor_serving 1\n");
  const MetricsPage now = Parsed(kBuild + "phasor_inflight_bytes 2\n");
  EXPECT_FALSE(CompareMetrics(before, now, 1, 0).restarted);
}

TEST(CompareMetricsTest, GaugesAreAsTheLaterPageHasThem) {
  const MetricsPage now =
      Parsed(kBuild +
             "phasor_serving 1\nphasor_inflight_bytes 10\nphasor_inflight_limit_bytes 40\n"
             "phasor_queued_calls 3\nphasor_waiting_calls 4\nphasor_connections 5\n"
             "phasor_leases 1\nphasor_lease_bytes 2\nphasor_regions 3\nphasor_region_bytes 4\n"
             "phasor_tables 5\nphasor_table_bytes 6\nprocess_start_time_seconds 1000\n"
             "process_resident_memory_bytes 77\nprocess_open_fds 8\nprocess_max_fds 9\n");
  const TopValues values = CompareMetrics(MetricsPage(), now, 1, 1090.5);
  EXPECT_EQ(values.version, "1.2.3");
  EXPECT_EQ(values.backend, "cpu");
  EXPECT_EQ(values.cpu_target, "AVX2");
  EXPECT_TRUE(values.serving);
  EXPECT_EQ(values.uptime_s, 90.5);
  EXPECT_EQ(values.inflight_bytes, 10);
  EXPECT_EQ(values.inflight_limit_bytes, 40);
  EXPECT_EQ(values.queued_calls, 3);
  EXPECT_EQ(values.waiting_calls, 4);
  EXPECT_EQ(values.connections, 5);
  EXPECT_EQ(values.leases.count, 1);
  EXPECT_EQ(values.leases.bytes, 2);
  EXPECT_EQ(values.regions.count, 3);
  EXPECT_EQ(values.regions.bytes, 4);
  EXPECT_EQ(values.tables.count, 5);
  EXPECT_EQ(values.tables.bytes, 6);
  EXPECT_EQ(values.resident_bytes, 77);
  EXPECT_EQ(values.open_fds, 8);
  EXPECT_EQ(values.max_fds, 9);
}

TEST(CompareMetricsTest, StagesAndSharesAreOfTheIntervalOnly) {
  const MetricsPage before = Parsed(
      kBuild +
      "phasor_queue_seconds_bucket{le=\"1\"} 100\nphasor_queue_seconds_bucket{le=\"+Inf\"} 100\n"
      "phasor_batch_calls_count 10\nphasor_batch_calls_sum 10\n"
      "phasor_calls_total{path=\"inline\"} 90\nphasor_calls_total{path=\"queued\"} 10\n"
      "phasor_plan_cache_hits_total 50\nphasor_plan_cache_misses_total 50\n");
  const MetricsPage now = Parsed(
      kBuild +
      "phasor_queue_seconds_bucket{le=\"1\"} 104\nphasor_queue_seconds_bucket{le=\"+Inf\"} 104\n"
      "phasor_batch_calls_count 14\nphasor_batch_calls_sum 20\n"
      "phasor_calls_total{path=\"inline\"} 91\nphasor_calls_total{path=\"queued\"} 13\n"
      "phasor_plan_cache_hits_total 59\nphasor_plan_cache_misses_total 51\n");
  const TopValues values = CompareMetrics(before, now, 1, 0);
  EXPECT_THAT(values.queue.p50_s, DoubleEq(0.5));
  EXPECT_THAT(values.gather.p50_s, IsNan());
  EXPECT_THAT(values.calls_per_batch, DoubleEq(2.5));
  EXPECT_THAT(values.inline_percent, DoubleEq(25));
  EXPECT_THAT(values.queued_percent, DoubleEq(75));
  EXPECT_THAT(values.plan_cache_hit_percent, DoubleEq(90));
}

TEST(CompareMetricsTest, WhatAPageDoesNotTellIsUnknown) {
  const MetricsPage page = Parsed(kBuild);
  const TopValues values = CompareMetrics(page, page, 1, 100);
  EXPECT_FALSE(values.serving);
  EXPECT_THAT(values.uptime_s, IsNan());
  EXPECT_THAT(values.cpu_percent, IsNan());
  EXPECT_THAT(values.calls_per_batch, IsNan());
  EXPECT_THAT(values.plan_cache_hit_percent, IsNan());
  EXPECT_EQ(values.calls_per_s, 0);
  const auto json = nlohmann::json::parse(ToJson(values, "somewhere").dump());
  EXPECT_EQ(json["metrics"], "somewhere");
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_TRUE(json["uptime_seconds"].is_null());
  EXPECT_TRUE(json["queue"]["p99_ms"].is_null());
  EXPECT_EQ(json["calls_per_second"], 0);
}

TEST(CompareMetricsTest, OtherProgramsPagesAreRecognised) {
  EXPECT_TRUE(IsServersPage(Parsed(kBuild)));
  EXPECT_FALSE(IsServersPage(Parsed("go_goroutines 8\n")));
}

}  // namespace
}  // namespace phasor::cli
