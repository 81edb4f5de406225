// SPDX-License-Identifier: Apache-2.0
// The buckets are those of transformers at every distance.
#include "kernels/math/log_buckets.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/bias_golden.h"

namespace phasor {
namespace {

using ::phasor::testing::GoldenBucket;
using ::phasor::testing::GoldenDistances;

TEST(LogBucketsTest, T5BucketsAreUpstreamsAtEveryDistance) {
  for (const auto& golden : testing::kT5Golden) {
    const int64_t one_way = golden.bidirectional ? golden.buckets / 2 : golden.buckets;
    const LogBuckets buckets = LogBuckets::T5(one_way, golden.max_distance);
    const std::vector<int64_t> distances = GoldenDistances(golden.max_distance);
    ASSERT_EQ(static_cast<int64_t>(distances.size()), golden.count);
    for (const int64_t d : distances) {
      const int64_t behind = golden.bidirectional ? std::abs(d) : std::max<int64_t>(-d, 0);
      const int64_t ahead = golden.bidirectional && d > 0 ? one_way : 0;
      EXPECT_EQ(ahead + buckets.Of(behind), GoldenBucket(golden.runs, d))
          << "distance " << d << ", " << golden.buckets << " buckets to " << golden.max_distance;
    }
  }
}

TEST(LogBucketsTest, DebertaBucketsAreUpstreamsAtEveryDistanceAlsoBeyondTheLargest) {
  for (const auto& golden : testing::kDebertaGolden) {
    const LogBuckets buckets = LogBuckets::Deberta(golden.buckets, golden.max_distance);
    const std::vector<int64_t> distances = GoldenDistances(golden.max_distance);
    ASSERT_EQ(static_cast<int64_t>(distances.size()), golden.count);
    for (const int64_t d : distances) {
      const int64_t bucket = d < 0 ? -buckets.Of(-d) : buckets.Of(d);
      EXPECT_EQ(bucket, GoldenBucket(golden.runs, d))
          << "distance " << d << ", " << golden.buckets << " buckets to " << golden.max_distance;
    }
  }
}

TEST(LogBucketsTest, LastT5BucketHoldsEveryLargerDistance) {
  const LogBuckets buckets = LogBuckets::T5(16, 128);
  EXPECT_EQ(buckets.Of(127), 15);
  EXPECT_EQ(buckets.Of(int64_t{1} << 62), 15);
}

TEST(LogBucketsTest, BucketsNeverFallWithDistance) {
  for (const int64_t n : {2, 3, 7, 16, 333, 1024}) {
    const LogBuckets buckets = LogBuckets::T5(n, 4 * n + 1);
    for (int64_t d = 1; d < 5 * n; ++d) EXPECT_LE(buckets.Of(d - 1), buckets.Of(d)) << n;
    EXPECT_EQ(buckets.Of(5 * n), n - 1);
  }
}

}  // namespace
}  // namespace phasor
