// SPDX-License-Identifier: Apache-2.0
// Threads take shards in turn, and keep theirs. More threads than shards share some, so the numbers
// are atomic.
#include "server/telemetry/shards.h"

#include <algorithm>
#include <vector>

namespace phasor::telemetry {
namespace {

size_t MyShard() {
  static std::atomic<size_t> threads = 0;
  thread_local const size_t mine = threads.fetch_add(1, std::memory_order_relaxed) % kShards;
  return mine;
}

}  // namespace

void ShardedCounter::Increment() {
  shards_[MyShard()].count.fetch_add(1, std::memory_order_relaxed);
}

void ShardedCounter::Flush() {
  for (Shard& shard : shards_) {
    const int64_t count = shard.count.exchange(0, std::memory_order_relaxed);
    total_.Increment(static_cast<double>(count));
  }
}

ShardedHistogram::ShardedHistogram(prometheus::Histogram* total,
                                   const prometheus::Histogram::BucketBoundaries& bounds)
    : total_(*total), bounds_(bounds) {}

void ShardedHistogram::Observe(double value) {
  Shard& shard = shards_[MyShard()];
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  shard.counts[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  shard.sum.fetch_add(value, std::memory_order_relaxed);
}

void ShardedHistogram::Flush() {
  std::vector<double> counts(bounds_.size() + 1);
  double sum = 0;
  for (Shard& shard : shards_) {
    for (size_t i = 0; i < counts.size(); ++i) {
      counts[i] += static_cast<double>(shard.counts[i].exchange(0, std::memory_order_relaxed));
    }
    sum += shard.sum.exchange(0, std::memory_order_relaxed);
  }
  total_.ObserveMultiple(counts, sum);
}

}  // namespace phasor::telemetry
