// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/item_positions.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/types/span.h"

namespace phasor::cuda {
namespace {

void PutRagged(const PositionSource& source, Slice slice, ItemPositions& positions, Arena& arena) {
  std::vector<int64_t> ends, starts;
  size_t s = static_cast<size_t>(
      std::upper_bound(source.ends.begin(), source.ends.end(), slice.first) - source.ends.begin());
  for (int64_t t = slice.first; t < slice.first + slice.count; ++s) {
    if (source.ends[s] <= t) continue;  // empty
    ends.push_back(source.ends[s]);
    starts.push_back(source.starts[s]);
    t = source.ends[s];
  }
  positions.sequences = static_cast<int64_t>(ends.size());
  positions.ends = arena.Put(absl::MakeConstSpan(ends));
  positions.starts = arena.Put(absl::MakeConstSpan(starts));
}

}  // namespace

bool AreWhole(const PositionSource& source) {
  switch (source.kind) {
    case PositionSource::Kind::kTensor:
      return source.dtype == Dtype::kInt32 || source.dtype == Dtype::kInt64;
    case PositionSource::Kind::kRagged:
      return true;
    case PositionSource::Kind::kGrid:
      return std::all_of(source.grid.begin(), source.grid.begin() + source.axes, [](const auto& a) {
        return a.start.fraction == 0 && a.step.fraction == 0;
      });
  }
  return false;
}

bool AreSimple(const PositionSource& source) {
  return source.axes == 1 && source.kind != PositionSource::Kind::kRagged && AreWhole(source);
}

ItemPositions MakePositions(const PositionSource& source, Slice slice, Arena& arena) {
  ItemPositions positions;
  positions.simple = AreSimple(source);
  positions.axes = source.axes;
  positions.period = MakeSmallDivisor(static_cast<int32_t>(slice.count));
  positions.first = slice.first;
  switch (source.kind) {
    case PositionSource::Kind::kGrid: {
      std::array<AxisSteps, kMaxAxes> grid;
      for (int a = 0; a < source.axes; ++a) {
        grid[a] = {source.grid[a].start, source.grid[a].step, MakeDivisor(source.grid[a].count)};
      }
      positions.kind = source.axes == 1 ? PositionKind::kRange : PositionKind::kGrid;
      positions.first += source.first;
      positions.range = grid[0];
      if (source.axes > 1) {
        positions.grid = arena.Put(absl::MakeConstSpan(grid.data(), source.axes));
      }
      break;
    }
    case PositionSource::Kind::kRagged:
      positions.kind = PositionKind::kRagged;
      PutRagged(source, slice, positions, arena);
      break;
    case PositionSource::Kind::kTensor: {
      const int64_t row_bytes = source.axes * SizeOf(source.dtype);
      positions.kind = PositionKind::kTensor;
      positions.dtype = source.dtype;
      positions.data =
          arena.PutBytes(source.data + slice.first * row_bytes, slice.count * row_bytes);
      break;
    }
  }
  return positions;
}

ItemPositions MakeTokenPositions(const RotaryJob& job, const PositionSource& source, Slice slice,
                                 Arena& arena) {
  if (job.batch == 1 || source.batch != 1) return MakePositions(source, slice, arena);
  const int64_t first = slice.first % job.tokens;
  return MakePositions(source, {first, std::min(slice.count, job.tokens - first)}, arena);
}

}  // namespace phasor::cuda
