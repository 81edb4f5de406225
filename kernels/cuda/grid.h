// SPDX-License-Identifier: Apache-2.0
// How a launch covers a batch. Blocks are numbered through all items, and each item cuts its rows
// into tiles. A kernel body gets the number of its block in the item and of its thread in the
// block, and is otherwise plain C++: tests run bodies over the whole grid on the host.
#ifndef PHASOR_KERNELS_CUDA_GRID_H_
#define PHASOR_KERNELS_CUDA_GRID_H_

#include <cstdint>

#include "kernels/base/host_device.h"

namespace phasor::cuda {

inline constexpr int kThreads = 256;  // of a block

// The work of an item: rows of `units` units each. A thread computes whole units. A block computes
// the rows of a tile or, if a row has many units, a part of one row.
struct ItemGrid {
  int64_t rows = 0;
  int32_t units = 0;  // of a row, > 0
  int32_t rows_per_block = 1;
  int32_t parts = 1;  // blocks of a row; 1 unless rows_per_block is 1
};

// The units of a block, if there are that many.
inline constexpr int32_t kUnitsPerBlock = 4 * kThreads;

// Needs units > 0.
inline ItemGrid MakeItemGrid(int64_t rows, int32_t units) {
  ItemGrid grid{rows, units, 1, 1};
  if (units >= kUnitsPerBlock) {
    grid.parts = units / kUnitsPerBlock + (units % kUnitsPerBlock != 0 ? 1 : 0);
  } else {
    grid.rows_per_block = kUnitsPerBlock / units;
  }
  return grid;
}

inline int64_t BlocksOf(const ItemGrid& grid) {
  return (grid.rows + grid.rows_per_block - 1) / grid.rows_per_block * grid.parts;
}

// Calls work(row, unit) for each unit of a thread.
template <typename Work>
PHASOR_HD void ForEachUnit(const ItemGrid& grid, int64_t block, int thread, const Work& work) {
  // 32-bit divisions are enough, because a launch has fewer than 2^31 blocks; a GPU has only those.
  const auto tile = static_cast<uint32_t>(block) / static_cast<uint32_t>(grid.parts);
  const auto part = static_cast<int32_t>(static_cast<uint32_t>(block) - tile * grid.parts);
  const int64_t first = int64_t{tile} * grid.rows_per_block;
  const int64_t left = grid.rows - first;
  const auto rows = static_cast<int32_t>(left < grid.rows_per_block ? left : grid.rows_per_block);
  int32_t end = rows * grid.units;
  const int32_t begin = part * kUnitsPerBlock;
  if (grid.parts > 1 && end - begin > kUnitsPerBlock) end = begin + kUnitsPerBlock;
  const auto units = static_cast<uint32_t>(grid.units);
  for (int32_t i = begin + thread; i < end; i += kThreads) {
    const uint32_t row = static_cast<uint32_t>(i) / units;
    work(first + row, static_cast<int32_t>(static_cast<uint32_t>(i) - row * units));
  }
}

// The items of one kernel, as a launch gets them. Pointers are addresses on the device.
struct Batch {
  const void* items = nullptr;           // [count], of the kernel's Item type
  const int64_t* first_block = nullptr;  // [count], ascending from 0
  int32_t count = 0;
  int64_t blocks = 0;  // of all items
};

// The index of the item that a block belongs to.
PHASOR_HD int32_t ItemOfBlock(const Batch& batch, int64_t block) {
  int32_t low = 0, high = batch.count - 1;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (batch.first_block[middle] <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Runs one thread of one block. Body has an Item and Run(item, block, thread).
template <typename Body>
PHASOR_HD void RunThread(const Batch& batch, int64_t block, int thread) {
  const int32_t i = ItemOfBlock(batch, block);
  const auto* items = static_cast<const typename Body::Item*>(batch.items);
  Body::Run(items[i], block - batch.first_block[i], thread);
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_GRID_H_
