// SPDX-License-Identifier: Apache-2.0
// Positions as a kernel reads them: a PositionSource (kernels/tensor/positions.h) in plain
// pointers. Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_POSITIONS_H_
#define PHASOR_KERNELS_CUDA_POSITIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/in_arena.h"
#include "kernels/math/fixed_position.h"
#include "kernels/math/phase.h"

namespace phasor::cuda {

// An axis of a range or grid, with the divisor that splits indices of a grid.
struct AxisSteps {
  Position start;
  Position step;
  Divisor count;
};

enum class PositionKind : uint8_t { kRange, kGrid, kRagged, kTensor };

// The positions of the rows of an item: row r has position r % period of them.
struct ItemPositions {
  PositionKind kind = PositionKind::kRange;
  bool simple = false;          // WholePosition gives them
  Dtype dtype = Dtype::kInt64;  // kTensor
  int32_t axes = 1;
  SmallDivisor period;
  int64_t first = 0;        // ranges, grids, ragged: index of row 0 in the whole source
  AxisSteps range;          // kRange
  InArena<AxisSteps> grid;  // kGrid: [axes], last axis fastest
  int64_t sequences = 0;    // kRagged
  InArena<int64_t> ends;    // kRagged: running sum of lengths in the whole source
  InArena<int64_t> starts;  // kRagged: position of the first token minus its index
  InArena<std::byte> data;  // kTensor: [period, axes], aligned to its dtype
};

PHASOR_HD Position TensorPosition(Dtype dtype, const std::byte* data, int64_t i) {
  if (dtype == Dtype::kInt32) return {LoadAligned<int32_t>(data + i * 4), 0};
  if (dtype == Dtype::kInt64) return {LoadAligned<int64_t>(data + i * 8), 0};
  const double real = dtype == Dtype::kFloat32
                          ? static_cast<double>(LoadAligned<float>(data + i * 4))
                          : LoadAligned<double>(data + i * 8);
  Position position;
  PositionFromDouble(real, &position);
  return position;
}

// The position at index i of a ragged source. Its sequence is the first one that ends after i.
PHASOR_HD Position RaggedPosition(const ItemPositions& p, const std::byte* arena, int64_t i) {
  const int64_t* const ends = p.ends.In(arena);
  int64_t low = 0, high = p.sequences - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (ends[middle] > i) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const auto start = static_cast<uint64_t>(p.starts.In(arena)[low]);
  return {static_cast<int64_t>(start + static_cast<uint64_t>(i)), 0};
}

// The index of position i of a grid along an axis.
PHASOR_HD int64_t GridIndex(const ItemPositions& p, const std::byte* arena, int64_t i, int axis) {
  const AxisSteps* const grid = p.grid.In(arena);
  PHASOR_ROLLED
  for (int a = p.axes - 1; a > axis; --a) i = Quotient(i, grid[a].count);
  return i - Quotient(i, grid[axis].count) * grid[axis].count.value;
}

PHASOR_HD Position GridPosition(const ItemPositions& p, const std::byte* arena, int64_t i,
                                int axis) {
  const int64_t index = GridIndex(p, arena, i, axis);
  const AxisSteps& steps = p.grid.In(arena)[axis];
  return PositionAlong(steps.start, steps.step, index);
}

PHASOR_HD int64_t WholeAlong(const AxisSteps& steps, int64_t i) {
  return static_cast<int64_t>(static_cast<uint64_t>(steps.start.whole) +
                              static_cast<uint64_t>(steps.step.whole) * static_cast<uint64_t>(i));
}

// Number i of a tensor of integers.
PHASOR_HD int64_t WholeInTensor(const ItemPositions& p, const std::byte* arena, int64_t i) {
  const std::byte* const data = p.data.In(arena);
  if (p.dtype == Dtype::kInt32) return LoadAligned<int32_t>(data + i * 4);
  return LoadAligned<int64_t>(data + i * 8);
}

// Position i of a period, if they are a range of whole numbers or a tensor of integers with one
// axis: a few instructions for the kernels that are used most.
PHASOR_HD int64_t WholeAt(const ItemPositions& p, const std::byte* arena, int64_t i) {
  if (p.kind == PositionKind::kRange) return WholeAlong(p.range, p.first + i);
  return WholeInTensor(p, arena, i);
}

// The same of a row.
PHASOR_HD int64_t WholePosition(const ItemPositions& p, const std::byte* arena, int64_t row) {
  const auto r = static_cast<int32_t>(row);
  return WholeAt(p, arena, r - Quotient(r, p.period) * p.period.value);
}

// The position of a row on an axis, if all positions are whole numbers.
PHASOR_HD int64_t WholeOnAxis(const ItemPositions& p, const std::byte* arena, int64_t row,
                              int axis) {
  const auto r = static_cast<int32_t>(row);
  const int64_t i = r - Quotient(r, p.period) * p.period.value;
  if (p.kind == PositionKind::kTensor) return WholeInTensor(p, arena, i * p.axes + axis);
  if (p.kind == PositionKind::kRagged) return RaggedPosition(p, arena, p.first + i).whole;
  return WholeAlong(p.grid.In(arena)[axis], GridIndex(p, arena, p.first + i, axis));
}

// The position of a row on an axis.
PHASOR_HD Position PositionOf(const ItemPositions& p, const std::byte* arena, int64_t row,
                              int axis) {
  const auto r = static_cast<int32_t>(row);
  const int64_t i = r - Quotient(r, p.period) * p.period.value;
  switch (p.kind) {
    case PositionKind::kRange:
      return PositionAlong(p.range.start, p.range.step, p.first + i);
    case PositionKind::kGrid:
      return GridPosition(p, arena, p.first + i, axis);
    case PositionKind::kRagged:
      return RaggedPosition(p, arena, p.first + i);
    case PositionKind::kTensor:
      return TensorPosition(p.dtype, p.data.In(arena), i * p.axes + axis);
  }
  return {};
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_POSITIONS_H_
