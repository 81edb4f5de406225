// SPDX-License-Identifier: Apache-2.0
// Tests that nothing which threads count is lost or counted twice, while another one reads.
#include "server/telemetry/shards.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace phasor::telemetry {
namespace {

TEST(ShardsTest, WhatManyThreadsCountIsMovedOnce) {
  constexpr int kThreads = 2 * kShards + 1, kEach = 2000;
  const prometheus::Histogram::BucketBoundaries bounds = {1, 3};
  prometheus::Counter counted;
  prometheus::Histogram observed(bounds);
  ShardedCounter counter(&counted);
  ShardedHistogram histogram(&observed, bounds);
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      counter.Flush();
      histogram.Flush();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        counter.Increment();
        histogram.Observe(i % 4 + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  reader.join();
  counter.Flush();
  histogram.Flush();
  constexpr uint64_t kAll = kThreads * kEach;
  EXPECT_EQ(counted.Value(), kAll);
  const prometheus::ClientMetric::Histogram seen = observed.Collect().histogram;
  EXPECT_EQ(seen.sample_count, kAll);
  EXPECT_EQ(seen.sample_sum, 2.5 * kAll);
}

TEST(ShardsTest, AValueOnABoundIsInTheBucketBelowIt) {
  const prometheus::Histogram::BucketBoundaries bounds = {1, 3};
  prometheus::Histogram sharded(bounds), plain(bounds);
  ShardedHistogram histogram(&sharded, bounds);
  for (const double value : {0.0, 1.0, 1.5, 3.0, 3.5, 100.0}) {
    histogram.Observe(value);
    plain.Observe(value);
  }
  histogram.Flush();
  const auto of_shards = sharded.Collect().histogram.bucket,
             of_library = plain.Collect().histogram.bucket;
  ASSERT_EQ(of_shards.size(), of_library.size());
  for (size_t i = 0; i < of_library.size(); ++i) {
    EXPECT_EQ(of_shards[i].cumulative_count, of_library[i].cumulative_count) << i;
  }
}

}  // namespace
}  // namespace phasor::telemetry
