// SPDX-License-Identifier: Apache-2.0
// The grid of wide rows: threads of a block are busy, and blocks fill the device a whole number of
// times. That each unit is computed once is what items_test.cc says of its bytes.
#include "kernels/cuda/wide_rows.h"

#include <gtest/gtest.h>

namespace phasor::cuda {
namespace {

constexpr int kProcessors = 132;

// Blocks, and rows of a thread.
void ExpectGrid(int64_t rows, int64_t pairs, int64_t bytes, int64_t blocks, int lane_rows) {
  const WideGrid grid = MakeWideGrid(pairs, rows, bytes, kProcessors);
  EXPECT_EQ(BlocksOf(grid), blocks) << rows << " " << pairs;
  EXPECT_EQ(grid.block_rows / grid.lanes, lane_rows) << rows << " " << pairs;
  EXPECT_GE(int64_t{grid.part_units.value} * grid.parts.value, grid.units);
}

TEST(WideRowsTest, BlocksFillTheDeviceInWholeWaves) {
  ExpectGrid(131072, 64, 2, 373, 11);  // room for 3 * 132
  ExpectGrid(131072, 64, 4, 1024, 8);  // for 4 * 132, twice
  ExpectGrid(4096, 768, 2, 384, 4);
  ExpectGrid(4096, 768, 4, 513, 6);
  ExpectGrid(2048, 512, 2, 256, 2);
  ExpectGrid(1, 160, 4, 1, 1);
}

TEST(WideRowsTest, FewThreadsOfABlockAreIdle) {
  for (int64_t units = 32; units <= 3000; ++units) {
    const WideGrid grid = MakeWideGrid(units * 8, 1, 2, kProcessors);
    const int64_t busy = int64_t{grid.lanes} * units / grid.parts.value;
    EXPECT_GE(busy, units < 512 ? 164 : 170) << units;
    EXPECT_LE(grid.lanes * grid.part_units.value, kThreads);
  }
}

}  // namespace
}  // namespace phasor::cuda
