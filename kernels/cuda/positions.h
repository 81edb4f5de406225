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

// The positions of the rows of an item: row r has position r % period of them. Pointers are
// addresses on the device.
struct ItemPositions {
  PositionKind kind = PositionKind::kRange;
  Dtype dtype = Dtype::kInt64;  // kTensor
  int32_t axes = 1;
  Divisor period;
  int64_t first = 0;                // ranges, grids, ragged: index of row 0 in the whole source
  AxisSteps range;                  // kRange
  const AxisSteps* grid = nullptr;  // kGrid: [axes], last axis fastest
  int64_t sequences = 0;            // kRagged
  const int64_t* ends = nullptr;    // kRagged: running sum of lengths in the whole source
  const int64_t* starts = nullptr;  // kRagged: position of the first token minus its index
  const std::byte* data = nullptr;  // kTensor: [period, axes], aligned to its dtype
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
PHASOR_HD Position RaggedPosition(const ItemPositions& p, int64_t i) {
  int64_t low = 0, high = p.sequences - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (p.ends[middle] > i) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {static_cast<int64_t>(static_cast<uint64_t>(p.starts[low]) + static_cast<uint64_t>(i)), 0};
}

PHASOR_HD Position GridPosition(const ItemPositions& p, int64_t i, int axis) {
  for (int a = p.axes - 1; a > axis; --a) i = Quotient(i, p.grid[a].count);
  const AxisSteps& steps = p.grid[axis];
  return PositionAlong(steps.start, steps.step, i - Quotient(i, steps.count) * steps.count.value);
}

// The position of a row on an axis.
PHASOR_HD Position PositionOf(const ItemPositions& p, int64_t row, int axis) {
  const int64_t i = row - Quotient(row, p.period) * p.period.value;
  switch (p.kind) {
    case PositionKind::kRange:
      return PositionAlong(p.range.start, p.range.step, p.first + i);
    case PositionKind::kGrid:
      return GridPosition(p, p.first + i, axis);
    case PositionKind::kRagged:
      return RaggedPosition(p, p.first + i);
    case PositionKind::kTensor:
      return TensorPosition(p.dtype, p.data, i * p.axes + axis);
  }
  return {};
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_POSITIONS_H_
