// SPDX-License-Identifier: Apache-2.0
// How a launch covers a batch. Blocks are numbered through all items, and each item gives every
// block a few of its units. A kernel body gets the number of its block in the item and of its
// thread in the block, and is otherwise plain C++: tests run bodies over the whole grid on the
// host.
#ifndef PHASOR_KERNELS_CUDA_GRID_H_
#define PHASOR_KERNELS_CUDA_GRID_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/divisor.h"

namespace phasor::cuda {

inline constexpr int kThreads = 256;  // of a block
inline constexpr int kSteps = 2;      // the most units of a thread
inline constexpr int kUnitsPerBlock = kSteps * kThreads;
inline constexpr int kWarp = 32;        // threads that a multiprocessor runs in step
inline constexpr int kLeastUnits = 96;  // of a block: a smaller one would take as long

// So many blocks of a multiprocessor run at once, and have enough loads in flight for its memory.
inline constexpr int kBlocksPerProcessor = 4;

// The work of an item: rows of some units each. The units of all rows are one sequence, and every
// block computes the next few of it.
struct ItemGrid {
  int64_t blocks = 0;
  int64_t total = 0;        // units of all rows
  Divisor row_units;        // units of a row
  SmallDivisor units;       // the same
  int32_t block_units = 1;  // of each block but the last
  int32_t places = 0;       // blocks that can run at once
};

inline int64_t RoundedUp(int64_t n, int64_t by) { return (n + by - 1) / by; }

// The rows that a block of `count` units touches at most.
inline int32_t RowsTouched(int32_t count, int32_t row_units) {
  return count % row_units == 0 ? count / row_units : (count + row_units - 2) / row_units + 1;
}

// What a grid should look like.
struct GridShape {
  int64_t rows = 0;
  int32_t units = 1;                    // of a row, > 0
  int32_t processors = 1;               // of the device
  int32_t most_units = kUnitsPerBlock;  // of a block
  int32_t most_rows = 1 << 20;          // that a block touches, > 1
  int32_t together = 1;  // so many units are never split; divides `units`; <= most_units
};

// A small item gets many small blocks, so that many processors have work. They fill half of the
// places, or all if they must: then the first blocks of the next launch can start early. A larger
// item gets blocks of kSteps units a thread, so that a thread has several loads in flight.
inline ItemGrid MakeItemGrid(const GridShape& shape) {
  const int32_t places = kBlocksPerProcessor * shape.processors;
  const int64_t total = shape.rows * shape.units;
  const int64_t filled = 2 * total <= int64_t{places} * kUnitsPerBlock ? (places + 1) / 2 : places;
  const int64_t share = RoundedUp(total, filled * kWarp) * kWarp;
  const auto wanted = static_cast<int32_t>(std::clamp<int64_t>(share, kLeastUnits, kUnitsPerBlock));
  int32_t count = std::max(std::min(wanted, shape.most_units), shape.together);
  // Blocks of whole rows have fewer angles to compute, and leave few threads idle if rows are
  // short.
  count -= count % (4 * shape.units <= count ? shape.units : shape.together);
  if (RowsTouched(count, shape.units) > shape.most_rows) {
    count = std::min(count / shape.units, shape.most_rows) * shape.units;
  }
  return {(total + count - 1) / count,   total, MakeDivisor(shape.units),
          MakeSmallDivisor(shape.units), count, places};
}

// The units of a block: `count` units from unit `first` of row `row` on.
struct BlockUnits {
  int64_t row = 0;
  int32_t first = 0;
  int32_t count = 0;
};

// kSmall: grid.total is below 2^31.
template <bool kSmall = false>
PHASOR_HD BlockUnits UnitsOf(const ItemGrid& grid, int64_t block) {
  if constexpr (kSmall) {
    const int32_t begin = static_cast<int32_t>(block) * grid.block_units;
    const int32_t row = Quotient(begin, grid.units);
    const int32_t left = static_cast<int32_t>(grid.total) - begin;
    return {row, begin - row * grid.units.value, left < grid.block_units ? left : grid.block_units};
  }
  const int64_t begin = block * grid.block_units;
  const int64_t row = Quotient(begin, grid.row_units);
  const int64_t left = grid.total - begin;
  return {row, static_cast<int32_t>(begin - row * grid.units.value),
          static_cast<int32_t>(left < grid.block_units ? left : grid.block_units)};
}

// A unit of an item.
struct UnitAt {
  int64_t row;
  int32_t unit;  // of the row
};

// Unit i of a block, 0 <= i < units.count.
PHASOR_HD UnitAt UnitOf(const ItemGrid& grid, const BlockUnits& units, int32_t i) {
  const int32_t flat = units.first + i;
  const int32_t row = Quotient(flat, grid.units);
  return {units.row + row, flat - row * grid.units.value};
}

// Calls work(row, unit) for each unit of a thread.
template <typename Work>
PHASOR_HD void ForEachUnit(const ItemGrid& grid, int64_t block, int thread, const Work& work) {
  const BlockUnits units = UnitsOf(grid, block);
  for (int32_t i = thread; i < units.count; i += kThreads) {
    const UnitAt at = UnitOf(grid, units, i);
    work(at.row, at.unit);
  }
}

// The items of one kernel, as a launch gets them. They lie in an arena, with all that they refer
// to.
struct Batch {
  const std::byte* arena = nullptr;  // on the device
  const std::byte* host = nullptr;   // the same bytes on the host
  int64_t arena_bytes = 0;
  int64_t items = 0;        // from the arena's begin: [count], of the kernel's Item type
  int64_t first_block = 0;  // from the arena's begin: [count] int64_t, ascending from 0
  int32_t count = 0;
  int64_t blocks = 0;  // of all items
};

// The index of the item that a block belongs to.
PHASOR_HD int32_t ItemOfBlock(const int64_t* first_block, int32_t count, int64_t block) {
  int32_t low = 0, high = count - 1;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (first_block[middle] <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// An item of a batch, and the number of a block in it.
template <typename Item>
struct ItemBlock {
  const Item& item;
  int64_t block;
};

template <typename Item>
PHASOR_HD ItemBlock<Item> FindItem(const std::byte* arena, int64_t items, int64_t first_block,
                                   int32_t count, int64_t block) {
  const auto* all = reinterpret_cast<const Item*>(arena + items);
  if (count == 1) return {all[0], block};
  const auto* first = reinterpret_cast<const int64_t*>(arena + first_block);
  const int32_t i = ItemOfBlock(first, count, block);
  return {all[i], block - first[i]};
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_GRID_H_
