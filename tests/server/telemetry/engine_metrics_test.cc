// SPDX-License-Identifier: Apache-2.0
// Tests that each measure of the engine goes to its own histogram.
#include "server/telemetry/engine_metrics.h"

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <map>
#include <string>

namespace phasor::telemetry {
namespace {

TEST(EngineMetricsTest, EveryMeasureGoesToItsOwnHistogram) {
  prometheus::Registry registry;
  EngineMetrics metrics(&registry);
  metrics.Taken(absl::Seconds(3));
  metrics.Ran({5, 6, 7000, absl::Seconds(11), absl::Seconds(13)});
  metrics.Flush();
  metrics.Flush();  // counts nothing twice
  std::map<std::string, double> sums;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    ASSERT_EQ(family.metric.size(), 1u) << family.name;
    EXPECT_EQ(family.metric[0].histogram.sample_count, 1u) << family.name;
    sums[family.name] = family.metric[0].histogram.sample_sum;
  }
  const std::map<std::string, double> expected = {
      {"phasor_queue_seconds", 3}, {"phasor_gather_seconds", 11}, {"phasor_compute_seconds", 13},
      {"phasor_batch_calls", 5},   {"phasor_batch_items", 6},     {"phasor_batch_bytes", 7000}};
  EXPECT_EQ(sums, expected);
}

}  // namespace
}  // namespace phasor::telemetry
