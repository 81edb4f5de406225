// SPDX-License-Identifier: Apache-2.0
// Tests the metrics of calls: methods, codes and bytes.
#include "server/telemetry/call_metrics.h"

#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace phasor::telemetry {
namespace {

const std::vector<std::string> kMethods = {"a.Service/One", "a.Service/Two"};

void End(CallMetrics* metrics, const std::string& method, int code, int64_t sent,
         std::optional<int64_t> received) {
  const auto nothing = [] { return std::string(); };
  metrics->Ended({method, code, "", absl::Milliseconds(2), sent, received, nothing, nothing});
}

struct Seen {
  uint64_t count = 0;
  double sum = 0;
};

// "family method code" -> what its histogram holds, or its counter.
std::map<std::string, Seen> Read(const prometheus::Registry& registry, CallMetrics& metrics) {
  metrics.Flush();
  std::map<std::string, Seen> seen;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string key = family.name;
      for (const prometheus::ClientMetric::Label& label : metric.label) key += " " + label.value;
      seen[key] = family.type == prometheus::MetricType::Counter
                      ? Seen{static_cast<uint64_t>(metric.counter.value), 0}
                      : Seen{metric.histogram.sample_count, metric.histogram.sample_sum};
    }
  }
  return seen;
}

TEST(CallMetricsTest, CallsOfManyThreadsAreAllCountedUnderTheirMethodAndCode) {
  prometheus::Registry registry;
  CallMetrics metrics(&registry, kMethods);
  constexpr int kThreads = 4, kCalls = 1000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&metrics] {
      for (int i = 0; i < kCalls; ++i) {
        metrics.Started(kMethods[i % 2]);
        End(&metrics, kMethods[i % 2], i % 2 == 0 ? 0 : 5, 10, 100);
      }
    });
  }
  Read(registry, metrics);  // while they count
  for (std::thread& thread : threads) thread.join();
  std::map<std::string, Seen> seen = Read(registry, metrics);
  constexpr uint64_t kOfEach = kThreads * kCalls / 2;
  EXPECT_EQ(seen["grpc_server_call_started_total a.Service/One"].count, kOfEach);
  const Seen ok = seen["grpc_server_call_duration_seconds a.Service/One OK"];
  EXPECT_EQ(ok.count, kOfEach);
  EXPECT_NEAR(ok.sum, kOfEach * 0.002, 1e-9);
  EXPECT_EQ(seen["grpc_server_call_duration_seconds a.Service/Two NOT_FOUND"].count, kOfEach);
  EXPECT_EQ(seen.count("grpc_server_call_duration_seconds a.Service/One NOT_FOUND"), 0u);
  EXPECT_EQ(
      seen["grpc_server_call_rcvd_total_compressed_message_size_bytes a.Service/Two NOT_FOUND"].sum,
      kOfEach * 100.0);
}

TEST(CallMetricsTest, CallsOfMethodsThatThereAreNotAreOneSeriesHoweverManyNamesTheyHave) {
  prometheus::Registry registry;
  CallMetrics metrics(&registry, kMethods);
  constexpr uint64_t kNames = 100000;
  for (uint64_t i = 0; i < kNames; ++i) {
    // As gRPC has it: of the call, gone when that is.
    const auto name = std::make_unique<const std::string>("a.Service/" + std::to_string(i));
    metrics.Started(*name);
    End(&metrics, *name, 12, 0, std::nullopt);
  }
  metrics.Started(kMethods[0]);
  std::map<std::string, Seen> seen = Read(registry, metrics);
  EXPECT_EQ(seen["grpc_server_call_started_total other"].count, kNames);
  EXPECT_EQ(seen["grpc_server_call_duration_seconds other UNIMPLEMENTED"].count, kNames);
  EXPECT_EQ(seen["grpc_server_call_started_total a.Service/One"].count, 1u);
  EXPECT_LT(prometheus::TextSerializer().Serialize(registry.Collect()).size(), 1u << 20);
}

TEST(CallMetricsTest, RequestsThatNobodyMeasuresAreNotCountedAsEmpty) {
  prometheus::Registry registry;
  CallMetrics metrics(&registry, kMethods);
  End(&metrics, kMethods[0], 0, 10, std::nullopt);
  std::map<std::string, Seen> seen = Read(registry, metrics);
  EXPECT_EQ(
      seen["grpc_server_call_rcvd_total_compressed_message_size_bytes a.Service/One OK"].count, 0u);
  EXPECT_EQ(
      seen["grpc_server_call_sent_total_compressed_message_size_bytes a.Service/One OK"].count, 1u);
}

TEST(CallMetricsTest, ACodeThatGrpcDoesNotNameIsUnknown) {
  prometheus::Registry registry;
  CallMetrics metrics(&registry, kMethods);
  End(&metrics, kMethods[0], 99, 0, 0);
  End(&metrics, kMethods[0], -1, 0, 0);
  EXPECT_EQ(
      Read(registry, metrics)["grpc_server_call_duration_seconds a.Service/One UNKNOWN"].count, 2u);
}

TEST(CallMetricsTest, ABucketHasTheLastSampledTraceOnceOneHasBeenAskedFor) {
  prometheus::Registry registry;
  CallMetrics metrics(&registry, kMethods);
  const auto end = [&metrics](absl::Duration took, const std::string& id,
                              const std::string& flags) {
    const auto nothing = [] { return std::string(); };
    const auto parent = [&] {
      return "00-" + std::string(32, id[0]) + "-00f067aa0ba902b7-" + flags;
    };
    metrics.Ended({kMethods[0], 0, "", took, 0, std::nullopt, nothing, parent});
  };
  // Trace ids in the page, by bucket.
  const auto traces = [&] {
    std::map<size_t, std::string> found;
    metrics.Flush();
    for (const prometheus::MetricFamily& family : registry.Collect()) {
      for (const prometheus::ClientMetric& metric : family.metric) {
        for (size_t bucket = 0; bucket < metric.histogram.bucket.size(); ++bucket) {
          const Exemplar exemplar = metrics.ExemplarOf(family, metric, bucket);
          if (!exemplar.trace_id.empty()) found[bucket] = exemplar.trace_id.substr(0, 1);
        }
      }
    }
    return found;
  };
  end(absl::Milliseconds(2), "a", "01");
  EXPECT_TRUE(traces().empty()) << "kept before anybody asked";
  end(absl::Milliseconds(2), "b", "01");
  end(absl::Microseconds(2500), "c", "0b");  // other flags may be set too
  end(absl::Milliseconds(2), "d", "0a");     // not sampled
  end(absl::Milliseconds(2), "d", "");       // not valid
  end(absl::Seconds(31), "e", "01");
  // 2 ms and 2.5 ms are in the bucket up to 2.5 ms, 31 s in that without a bound.
  EXPECT_EQ(traces(), (std::map<size_t, std::string>{{5, "c"}, {18, "e"}}));
}

}  // namespace
}  // namespace phasor::telemetry
