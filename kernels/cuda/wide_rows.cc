// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/wide_rows.h"

#include <algorithm>
#include <vector>

#include "absl/types/span.h"

namespace phasor::cuda {
namespace {

// The most rows of an encoding that a thread computes.
constexpr int64_t kMostLaneRows = 12;

// In so many parts a row of wide rows is cut: as few as threads need, or one or two more if that
// keeps more threads of a block busy.
int64_t PartsOf(int64_t units) {
  const int64_t fewest = (units + kThreads - 1) / kThreads;
  int64_t best = fewest, most_busy = 0;
  for (int64_t parts = fewest; parts <= fewest + 2; ++parts) {
    const int64_t side = (units + parts - 1) / parts;
    if (parts > fewest && side < 32) break;  // the threads of a warp stay in one row
    const int64_t busy = kThreads / side * units / parts;
    if (busy > most_busy) best = parts;
    most_busy = std::max(most_busy, busy);
  }
  return best;
}

}  // namespace

WideRows WideRowsOf(const EncodeJob& job, const RowBuffers& buffers) {
  const RowLayout& layout = LayoutOf(job);
  WideRows wide;
  if (layout.blocks.size() != 1 || buffers.add_to != nullptr) return wide;
  const EncodeBlock& block = layout.blocks[0];
  const int64_t begin = std::min(block.sin_begin, block.cos_begin);
  const int64_t apart = std::max(block.sin_begin, block.cos_begin) - begin;
  const bool side_by_side = block.stride == 2 && apart == 1;
  const bool in_runs = block.stride == 1 && apart == block.pairs;
  if (begin != 0 || block.first_pair != 0 || layout.width != 2 * block.pairs) return wide;
  if ((!side_by_side && !in_runs) || block.accumulate || block.negate_sin) return wide;
  using enum WideRows::Order;
  const auto out = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffers.out));
  const int64_t run_bytes = block.pairs * SizeOf(job.dtype);
  wide.used = (run_bytes | out | buffers.out_row_bytes) % kVectorBytes == 0;
  wide.order = in_runs ? kInRuns : block.sin_begin == 0 ? kSinCos : kCosSin;
  wide.first = in_runs && block.sin_begin != 0 ? run_bytes : 0;
  wide.second = run_bytes - wide.first;
  wide.pairs = block.pairs;
  return wide;
}

InArena<uint64_t> PutFractions(const Plan& plan, const WideRows& wide, int64_t element_bytes,
                               Arena& arena) {
  const auto vector = static_cast<int>(kVectorBytes / element_bytes);
  const int64_t units = wide.pairs / vector;
  const int at_once = FractionsAtOnce(vector);
  std::vector<uint64_t> fractions(plan.frequency.size());
  for (int64_t unit = 0; unit < units; ++unit) {
    for (int i = 0; i < vector; ++i) {
      const int64_t at = FractionAt(vector, units, unit, i - i % at_once) + i % at_once;
      fractions[at] = plan.frequency[PairOf(wide, vector, unit, i)].fraction;
    }
  }
  return arena.Put(absl::MakeConstSpan(fractions));
}

WideGrid MakeWideGrid(int64_t pairs, int64_t rows, int64_t element_bytes, int processors) {
  const int64_t units = pairs * element_bytes / kVectorBytes;
  const int64_t parts = PartsOf(units), side = (units + parts - 1) / parts;
  const int64_t lanes = kThreads / side;
  const int64_t resident = int64_t{ResidentBlocks(element_bytes)} * processors;
  const int64_t at_once = std::max<int64_t>(resident / parts, 1) * lanes;
  const int64_t waves = 1 + (rows - 1) / (at_once * kMostLaneRows);
  const int64_t lane_rows = 1 + (rows - 1) / (at_once * waves);
  WideGrid grid;
  grid.rows = rows;
  grid.block_rows = static_cast<int32_t>(lanes * lane_rows);
  grid.parts = MakeSmallDivisor(static_cast<int32_t>(parts));
  grid.part_units = MakeSmallDivisor(static_cast<int32_t>(side));
  grid.units = static_cast<int32_t>(units);
  grid.lanes = static_cast<int32_t>(lanes);
  return grid;
}

}  // namespace phasor::cuda
