// SPDX-License-Identifier: Apache-2.0
// Counters and histograms that many threads fill at once. Each thread adds to one of a few shards,
// without a lock and without a cache line that all cores write. Flush moves what the shards hold to
// the metric that the library collects.
#ifndef PHASOR_SERVER_TELEMETRY_SHARDS_H_
#define PHASOR_SERVER_TELEMETRY_SHARDS_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace phasor::telemetry {

inline constexpr size_t kShards = 16;  // a power of two

// A counter. Threads: any.
class ShardedCounter {
 public:
  // `total` must outlive this.
  explicit ShardedCounter(prometheus::Counter* total) : total_(*total) {}
  void Increment();
  void Flush();

 private:
  struct alignas(64) Shard {
    std::atomic<int64_t> count = 0;
  };
  prometheus::Counter& total_;
  std::array<Shard, kShards> shards_;
};

// A histogram. Threads: any.
class ShardedHistogram {
 public:
  static constexpr size_t kMostBounds = 22;  // a shard is three cache lines

  // `total`, which has these `bounds`, at most kMostBounds, must outlive this.
  ShardedHistogram(prometheus::Histogram* total,
                   const prometheus::Histogram::BucketBoundaries& bounds);
  // `value` is counted in the first bucket whose bound is not below it.
  void Observe(double value);
  void Flush();

 private:
  struct alignas(64) Shard {
    std::atomic<double> sum = 0;
    std::array<std::atomic<int64_t>, kMostBounds + 1> counts = {};
  };
  prometheus::Histogram& total_;
  const prometheus::Histogram::BucketBoundaries bounds_;
  std::array<Shard, kShards> shards_;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_SHARDS_H_
