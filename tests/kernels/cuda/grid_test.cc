// SPDX-License-Identifier: Apache-2.0
// Grids: every unit belongs to one thread of one block, and the blocks fill the device.
#include "kernels/cuda/grid.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "kernels/cuda/items.h"

namespace phasor::cuda {
namespace {

// How often each unit is computed.
std::vector<int> CountUnits(const ItemGrid& grid) {
  std::vector<int> times(static_cast<size_t>(grid.total));
  for (int64_t block = 0; block < grid.blocks; ++block) {
    EXPECT_LE(UnitsOf(grid, block).count, kUnitsPerBlock);
    for (int thread = 0; thread < kThreads; ++thread) {
      ForEachUnit(grid, block, thread, [&](int64_t row, int32_t unit) {
        ++times[static_cast<size_t>(row * grid.units.value + unit)];
      });
    }
  }
  return times;
}

TEST(GridTest, EveryUnitIsComputedOnce) {
  for (const auto& [rows, units, processors, together] :
       {std::tuple(1, 1, 1, 1), std::tuple(1, 320, 132, 8), std::tuple(7, 320, 1, 8),
        std::tuple(3000, 3, 1, 1), std::tuple(5, 5000, 2, 1), std::tuple(5, 5000, 2, 40),
        std::tuple(40, 1000, 1, 500), std::tuple(64, 320, 132, 8)}) {
    const ItemGrid grid = MakeItemGrid(
        {.rows = rows, .units = units, .processors = processors, .together = together});
    EXPECT_EQ(CountUnits(grid), std::vector<int>(static_cast<size_t>(rows * units), 1))
        << rows << " rows of " << units;
    EXPECT_EQ(grid.block_units % together, 0);
  }
}

TEST(GridTest, KeepsToTheMostUnitsAndRowsOfABlock) {
  const ItemGrid few = MakeItemGrid({.rows = 1 << 20, .units = 100, .most_units = 256});
  EXPECT_LE(few.block_units, 256);
  const ItemGrid rows = MakeItemGrid({.rows = 1 << 20, .units = 2, .most_rows = 5});
  EXPECT_EQ(rows.block_units, 10);
  for (const int32_t units : {1, 3, 8, 100, 300, 512, 700}) {
    const ItemGrid grid = MakeItemGrid({.rows = 1 << 20, .units = units, .most_rows = 3});
    for (const int64_t block : {0, 1, 2, 3, 1000}) {
      const BlockUnits at = UnitsOf(grid, block);
      EXPECT_LE(UnitOf(grid, at, at.count - 1).row - at.row + 1, 3) << units;
    }
  }
}

TEST(GridTest, SmallNumbersFindTheSameUnits) {
  for (const auto& [rows, units] : {std::pair(1, 1), std::pair(7, 320), std::pair(6000, 72)}) {
    const ItemGrid grid = MakeItemGrid({.rows = rows, .units = units, .processors = 132});
    for (int64_t block = 0; block < grid.blocks; ++block) {
      const BlockUnits want = UnitsOf(grid, block), got = UnitsOf<true>(grid, block);
      ASSERT_EQ(got.row, want.row) << block;
      ASSERT_EQ(got.first, want.first) << block;
      ASSERT_EQ(got.count, want.count) << block;
    }
  }
}

// So that the next launch's blocks can start before this one's end.
TEST(GridTest, SmallItemsLeaveHalfOfThePlaces) {
  for (const int64_t tokens : {1, 8, 64, 128, 256}) {
    const ItemGrid grid =
        MakeItemGrid({.rows = tokens, .units = 320, .processors = 132, .together = 8});
    EXPECT_LE(grid.blocks, grid.places / 2) << tokens;
  }
}

// 256 calls of one token in a launch on 132 multiprocessors: two blocks each, equally full.
TEST(GridTest, ItemsOfABatchHaveFewBlocks) {
  const ItemGrid grid =
      MakeItemGrid({.rows = 1, .units = 320, .processors = ShareOf(132, 256), .together = 8});
  EXPECT_EQ(grid.blocks, 2);
  EXPECT_EQ(grid.block_units, 160);
  EXPECT_EQ(ShareOf(132, 1), 132);
  EXPECT_EQ(ShareOf(132, 0), 132);
}

// 32 query and 8 key heads of 128 lanes in 16 bits: 320 units to a token.
TEST(GridTest, BlocksFillTheDevice) {
  for (const int processors : {20, 82, 132, 148}) {
    for (const int64_t tokens : {64, 512, 4096, 8192, 32768}) {
      const ItemGrid grid =
          MakeItemGrid({.rows = tokens, .units = 320, .processors = processors, .together = 8});
      const int64_t threads = tokens * 320;
      if (threads >= int64_t{2} * processors * kThreads) {
        EXPECT_GE(grid.blocks, 2 * processors) << tokens << " tokens on " << processors;
      } else {
        EXPECT_GE(grid.blocks * kThreads, threads) << "a unit to each thread";
      }
    }
  }
}

}  // namespace
}  // namespace phasor::cuda
