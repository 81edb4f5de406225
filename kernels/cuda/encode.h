// SPDX-License-Identifier: Apache-2.0
// Encode on a GPU. Contract: kernels/ops/encode.h, but pointers and strides must be multiples of
// the element's size. A row layout is compiled into steps (row_program.h), and a unit is the
// columns that begin with one pair. But most rows are just one sine and one cosine of every pair;
// these are written kVectorBytes at a time instead, by threads that keep the frequencies of their
// pairs for several rows.
// Threads: bodies of one launch write different columns.
#ifndef PHASOR_KERNELS_CUDA_ENCODE_H_
#define PHASOR_KERNELS_CUDA_ENCODE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/in_arena.h"
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/positions.h"
#include "kernels/cuda/row_program.h"
#include "kernels/cuda/turns.h"
#include "kernels/math/element.h"

namespace phasor::cuda {

// Rows of sines and cosines only, side by side or in two runs. A unit writes two vectors, each
// beside those of its neighbours: the second one is half a row after the first.
struct WideRows {
  bool used = false;
  bool side_by_side = false;  // sine and cosine of a pair are neighbours
  bool sin_first = true;
  int64_t pairs = 0;  // a multiple of the elements in kVectorBytes
};

// How blocks cover wide rows: `lanes` rows side by side, each by as many threads as it has units.
// Rows of more than kThreads units are cut into parts.
struct WideGrid {
  int64_t rows = 0;
  int32_t block_rows = 1;
  SmallDivisor parts;       // of a row
  SmallDivisor part_units;  // of each part but the last
  int32_t units = 1;        // of a row
};

// What a kernel computes for one job's slice. `out` and `add_to` are addresses on the device.
struct EncodeItem {
  ItemGrid grid;
  ItemPositions positions;
  ItemTurns turns;
  double amplitude = 1;
  double cos_bias = 0;
  double embedding_scale = 1;
  WideRows wide;
  bool stepped = false;  // positions are a range of whole numbers
  WideGrid wide_grid;
  InArena<int64_t> unit_begin;  // [units + 1]: first step of each unit
  InArena<RowStep> steps;
  std::byte* out = nullptr;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_row_bytes = 0;
};

// kPlain: one axis and layer, no offsets, no xPos.
template <typename Element, bool kPlain>
struct EncodeBody {
  using Item = EncodeItem;
  static constexpr bool kOften = kPlain;  // see launch.cu
  using T = typename Element::Math;
  static constexpr int kBytes = static_cast<int>(Element::kBytes);
  static constexpr int kPairs = kVectorBytes / kBytes;

  static PHASOR_HD void Run(const EncodeItem& item, const std::byte* arena, int64_t block,
                            int thread) {
    if (item.wide.used) {
      RunWide(item, arena, block, thread);
    } else {
      ForEachUnit(item.grid, block, thread,
                  [&](int64_t row, int32_t unit) { RunUnit(item, arena, row, unit); });
    }
  }

 private:
  // Computes kPairs pairs of every row of a thread. Threads of a block are side by side along its
  // units, then along its rows.
  static PHASOR_HD void RunWide(const EncodeItem& item, const std::byte* arena, int64_t block,
                                int thread) {
    const WideGrid& grid = item.wide_grid;
    const int32_t tile = Quotient(static_cast<int32_t>(block), grid.parts);
    const int32_t part = static_cast<int32_t>(block) - tile * grid.parts.value;
    const int32_t lane = Quotient(thread, grid.part_units);
    const int32_t lanes = Quotient(kThreads, grid.part_units);
    const int32_t unit = (part - lane) * grid.part_units.value + thread;
    if (lane >= lanes || unit >= grid.units) return;
    const int64_t first = int64_t{tile} * grid.block_rows;
    const int64_t end = grid.rows - first < grid.block_rows ? grid.rows : first + grid.block_rows;
    const WideWork work{first + lane, end, lanes, unit * int64_t{kPairs}};
    if (kPlain && item.stepped) {
      RunSteps(item, arena, work);
    } else {
      RunRows(item, arena, work);
    }
  }

  // What a thread computes: the pairs of columns [column, column + kPairs) and of those half a row
  // later, of rows first, first + step, ... before end.
  struct WideWork {
    int64_t first;
    int64_t end;
    int32_t step;
    int64_t column;
  };

  // Pair i of a thread. Side by side, each half of a row has pairs of its own.
  static PHASOR_HD int64_t PairOf(const WideRows& wide, int64_t column, int i) {
    if (!wide.side_by_side) return column + i;
    return column / 2 + (i < kPairs / 2 ? i : wide.pairs / 2 + i - kPairs / 2);
  }

  static PHASOR_HD void RunRows(const EncodeItem& item, const std::byte* arena,
                                const WideWork& work) {
    for (int64_t row = work.first; row < work.end; row += work.step) {
      const Position position = OnOneAxis(item, arena, row);
      SinCos<T> v[kPairs];
      PHASOR_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        v[i] = Components(item, arena, row, position, PairOf(item.wide, work.column, i));
      }
      StoreWide(item.wide, v, item.out + row * item.out_row_bytes + work.column * kBytes);
    }
  }

  // The same for positions in equal steps of whole numbers: from row to row, each phase grows by
  // the same number. Sums of integers are exact, so the bits are those of RunRows.
  static PHASOR_HD void RunSteps(const EncodeItem& item, const std::byte* arena,
                                 const WideWork& work) {
    const AxisSteps& range = item.positions.range;
    const auto step = static_cast<uint64_t>(range.step.whole);
    const uint64_t position = static_cast<uint64_t>(range.start.whole) +
                              step * static_cast<uint64_t>(item.positions.first + work.first);
    uint64_t phase[kPairs], growth[kPairs];
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const int64_t pair = PairOf(item.wide, work.column, i);
      const uint64_t frequency = item.turns.frequency.In(arena)[pair].fraction;
      phase[i] = position * frequency;
      growth[i] = step * static_cast<uint64_t>(work.step) * frequency;
    }
    const WideRows wide = item.wide;
    const T amplitude = static_cast<T>(item.amplitude), bias = static_cast<T>(item.cos_bias);
    const bool changed = amplitude != 1 || bias != 0;
    const int64_t row_bytes = item.out_row_bytes * work.step;
    std::byte* out = item.out + work.first * item.out_row_bytes + work.column * kBytes;
    for (auto rows = static_cast<int32_t>(work.end - work.first); rows > 0; rows -= work.step) {
      SinCos<T> v[kPairs];
      PHASOR_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        v[i] = Element::Trig(phase[i]);
        phase[i] += growth[i];
      }
      if (changed) {
        PHASOR_UNROLL
        for (int i = 0; i < kPairs; ++i) v[i] = Changed(v[i], amplitude, bias);
      }
      StoreWide(wide, v, out);
      out += row_bytes;
    }
  }

  // Writes the two vectors of a unit.
  static PHASOR_HD void StoreWide(const WideRows& wide, const SinCos<T> (&v)[kPairs],
                                  std::byte* out) {
    T low[kPairs], high[kPairs];
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const SinCos<T> a = v[i / 2], b = v[kPairs / 2 + i / 2];  // side by side
      const bool sin = wide.sin_first == (i % 2 == 0);
      low[i] = wide.side_by_side ? (sin ? a.sin : a.cos) : wide.sin_first ? v[i].sin : v[i].cos;
      high[i] = wide.side_by_side ? (sin ? b.sin : b.cos) : wide.sin_first ? v[i].cos : v[i].sin;
    }
    StoreWords(PackLanes<Element>(low), out);
    StoreWords(PackLanes<Element>(high), out + wide.pairs * kBytes);
  }

  static PHASOR_HD void RunUnit(const EncodeItem& item, const std::byte* arena, int64_t row,
                                int32_t unit) {
    std::byte* const out = item.out + row * item.out_row_bytes;
    const std::byte* const add_to =
        item.add_to == nullptr ? nullptr : item.add_to + row * item.add_to_row_bytes;
    const T scale = static_cast<T>(item.embedding_scale);
    const int64_t* const unit_begin = item.unit_begin.In(arena);
    const RowStep* const steps = item.steps.In(arena);
    const int64_t end = unit_begin[unit + 1];
    const Position position = OnOneAxis(item, arena, row);
    int64_t pair = -1;  // the pair that v belongs to
    SinCos<T> v = {};
    T column = 0;
    for (int64_t i = unit_begin[unit]; i < end; ++i) {
      const RowStep step = steps[i];
      if (step.what != RowStep::What::kZero && step.pair != pair) {
        pair = step.pair;
        v = Components(item, arena, row, position, pair);
      }
      const T value = Value(step, v);
      column = step.first ? value : column + value;
      if (!step.last) continue;
      const int64_t at = step.column * Element::kBytes;
      T result = column;
      if (add_to != nullptr) result = std::fma(scale, LoadElement<Element>(add_to + at), result);
      StoreElement<Element>(result, out + at);
    }
  }

  static PHASOR_HD T Value(const RowStep& step, const SinCos<T>& v) {
    switch (step.what) {
      case RowStep::What::kSin:
        return v.sin;
      case RowStep::What::kMinusSin:
        return -v.sin;
      case RowStep::What::kCos:
        return v.cos;
      case RowStep::What::kZero:
        return 0;
    }
    return 0;
  }

  // The position of a row if there is only one axis.
  static PHASOR_HD Position OnOneAxis(const EncodeItem& item, const std::byte* arena, int64_t row) {
    if constexpr (kPlain) return PositionOf(item.positions, arena, row, 0);
    return {};
  }

  static PHASOR_HD SinCos<T> Components(const EncodeItem& item, const std::byte* arena, int64_t row,
                                        Position position, int64_t pair) {
    if constexpr (kPlain) {
      const Frequency frequency = item.turns.frequency.In(arena)[pair];
      return Scaled(item, PhaseAt(frequency, position), item.amplitude);
    }
    double amplitude = item.amplitude;
    if (!item.turns.xpos_rate.empty()) {
      amplitude *= Exp2(ExponentOfRow(item.turns, item.positions, arena, pair, row));
    }
    return Scaled(item, PhaseOfRow(item.turns, item.positions, arena, pair, row), amplitude);
  }

  static PHASOR_HD SinCos<T> Scaled(const EncodeItem& item, uint64_t phase, double amplitude) {
    return Changed(Element::Trig(phase), static_cast<T>(amplitude), static_cast<T>(item.cos_bias));
  }

  static PHASOR_HD SinCos<T> Changed(SinCos<T> v, T amplitude, T bias) {
    if (amplitude != 1) v = {amplitude * v.sin, amplitude * v.cos};
    if (bias != 0) v.cos += bias;
    return v;
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ENCODE_H_
