// SPDX-License-Identifier: Apache-2.0
// How jobs over tables are cut into tiles. lookup_test and bias_test check what they compute.
#include "kernels/cpu/table_jobs.h"

#include <gtest/gtest.h>

namespace phasor::cpu {
namespace {

PositionSource Range(int64_t count) {
  return *MakePositionSource(AxisRange(IntegerRange{0, 1, count}), 1, "p");
}

TEST(TableJobsTest, AQueryWritesItsKeysInEveryHead) {
  const PositionSource queries = Range(3), keys = Range(5);
  BiasJob job;
  job.queries = &queries;
  job.keys = &keys;
  job.heads = 4;
  job.dtype = Dtype::kFloat16;
  EXPECT_EQ(BiasRows(job), 3);
  EXPECT_EQ(BiasRowBytes(job), 5 * 2);
}

TEST(TableJobsTest, WithoutKeysThereAreNoRowsHoweverManyQueries) {
  const PositionSource queries = Range(int64_t{1} << 40), keys = Range(0);
  BiasJob job;
  job.queries = &queries;
  job.keys = &keys;
  EXPECT_EQ(BiasRows(job), 0);
}

}  // namespace
}  // namespace phasor::cpu
