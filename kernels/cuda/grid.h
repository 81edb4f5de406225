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

// So many blocks of a multiprocessor run at once, and have enough loads in flight for its memory.
inline constexpr int kBlocksPerProcessor = 4;

// The work of an item: rows of some units each. A block computes whole rows or, if a row has many
// units, a part of one row.
struct ItemGrid {
  int64_t rows = 0;
  SmallDivisor units;          // of a row
  int32_t rows_per_block = 1;  // 1 if `parts` is not 1
  SmallDivisor parts;          // blocks of a row
  int32_t part_units = 1;      // of each part but the last
};

inline int64_t BlocksOf(const ItemGrid& grid) {
  return (grid.rows + grid.rows_per_block - 1) / grid.rows_per_block * grid.parts.value;
}

// What a grid should look like.
struct GridShape {
  int64_t rows = 0;
  int32_t units = 1;                    // of a row, > 0
  int32_t processors = 1;               // of the device
  int32_t most_units = kUnitsPerBlock;  // of a block
  int32_t most_rows = 1 << 20;          // of a block
  int32_t together = 1;                 // so many units in a row are never split, <= most_units
};

// A small item gets many small blocks, so that every processor of the device has work. A large item
// gets blocks of kSteps units a thread, so that a thread has several loads in flight.
inline ItemGrid MakeItemGrid(const GridShape& shape) {
  const int64_t wave = int64_t{kBlocksPerProcessor} * shape.processors * kThreads;
  const int64_t steps = std::clamp<int64_t>(shape.rows * shape.units / wave, 1, kSteps);
  const int32_t wanted =
      std::max(std::min(static_cast<int32_t>(steps) * kThreads, shape.most_units), shape.together);
  ItemGrid grid{shape.rows, MakeSmallDivisor(shape.units), 1, {}, shape.units};
  if (shape.units > wanted) {
    grid.part_units = wanted / shape.together * shape.together;
    grid.parts = MakeSmallDivisor((shape.units + grid.part_units - 1) / grid.part_units);
  } else {
    grid.rows_per_block = std::clamp(wanted / shape.units, 1, shape.most_rows);
  }
  return grid;
}

// The units of a block: `count` units from unit `first` of row `row` on.
struct BlockUnits {
  int64_t row = 0;
  int32_t first = 0;
  int32_t count = 0;
};

PHASOR_HD BlockUnits UnitsOf(const ItemGrid& grid, int64_t block) {
  BlockUnits units;
  if (grid.parts.value == 1) {
    units.row = block * grid.rows_per_block;
    const int64_t left = grid.rows - units.row;
    units.count = static_cast<int32_t>(left < grid.rows_per_block ? left : grid.rows_per_block) *
                  grid.units.value;
  } else {
    // A launch has fewer than 2^31 blocks.
    const int32_t row = Quotient(static_cast<int32_t>(block), grid.parts);
    units.row = row;
    units.first = (static_cast<int32_t>(block) - row * grid.parts.value) * grid.part_units;
    const int32_t left = grid.units.value - units.first;
    units.count = left < grid.part_units ? left : grid.part_units;
  }
  return units;
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
