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
#include <type_traits>

#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/early_start.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/in_arena.h"
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/positions.h"
#include "kernels/cuda/row_program.h"
#include "kernels/cuda/trig.h"
#include "kernels/cuda/turns.h"
#include "kernels/math/element.h"

namespace phasor::cuda {

// Rows of sines and cosines only. A unit writes two vectors, each beside those of its neighbours.
struct WideRows {
  enum class Order : uint8_t {
    kInRuns,  // the first vector is of sines, the second of cosines
    kSinCos,  // side by side: sine and cosine of a pair are neighbours
    kCosSin,
  };
  bool used = false;
  Order order = Order::kInRuns;
  int64_t first = 0;  // bytes from a row's begin to the first vector of unit 0
  int64_t second = 0;
  int64_t pairs = 0;  // a multiple of the elements in kVectorBytes
  // The fractions of the frequencies, if positions are whole numbers; empty otherwise. Those that
  // neighbouring threads load at once are neighbours (FractionAt).
  InArena<uint64_t> fraction;
};

// Pair i of a unit of `vector` pairs. Side by side, each half of a row has pairs of its own.
PHASOR_HD int64_t PairOf(const WideRows& wide, int vector, int64_t unit, int i) {
  if (wide.order == WideRows::Order::kInRuns) return unit * vector + i;
  return unit * vector / 2 + (i < vector / 2 ? i : wide.pairs / 2 + i - vector / 2);
}

// A thread loads the fractions of so many of a unit's pairs at once.
PHASOR_HD constexpr int FractionsAtOnce(int vector) { return vector > 2 ? 2 : 1; }

// Where the fraction of pair i of a unit is, for the first pair of a load.
PHASOR_HD int64_t FractionAt(int vector, int64_t units, int64_t unit, int i) {
  return i * units + unit * FractionsAtOnce(vector);
}

// How blocks cover wide rows: `lanes` rows side by side, each by as many threads as it has units.
// Long rows are cut into parts.
struct WideGrid {
  int64_t rows = 0;
  int32_t block_rows = 1;
  SmallDivisor parts;       // of a row
  SmallDivisor part_units;  // of each part but the last
  int32_t units = 1;        // of a row
  int32_t lanes = 1;
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
  WideGrid wide_grid;
  InArena<int64_t> unit_begin;  // [units + 1]: first step of each unit
  InArena<RowStep> steps;
  std::byte* out = nullptr;
  int64_t out_row_bytes = 0;
  int64_t out_lanes_bytes = 0;        // of as many rows as wide_grid.lanes
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_row_bytes = 0;
};

// So many blocks are resident on a multiprocessor. Eight pairs need more registers than four.
constexpr int ResidentBlocks(int64_t element_bytes) { return element_bytes == 2 ? 3 : 4; }

// kPlain: one axis and layer, no offsets, no xPos.
template <typename Element, bool kPlain>
struct EncodeBody {
  using Item = EncodeItem;
  static constexpr bool kOften = kPlain;  // see launch.cu
  static constexpr bool kWaits = true;    // calls WaitForEarlierKernels
  using T = typename Element::Math;
  static constexpr int kBytes = static_cast<int>(Element::kBytes);
  static constexpr int kPairs = kVectorBytes / kBytes;
  static constexpr int kResident = kPlain ? ResidentBlocks(kBytes) : 2;

  static PHASOR_HD void Run(const EncodeItem& item, const std::byte* arena, int64_t block,
                            int thread) {
    if (item.wide.used) {
      RunWide(item, arena, block, thread);
    } else {
      WaitForEarlierKernels();
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
    const int32_t unit = (part - lane) * grid.part_units.value + thread;
    const int64_t first = int64_t{tile} * grid.block_rows;
    const int64_t end = grid.rows - first < grid.block_rows ? grid.rows : first + grid.block_rows;
    if (lane >= grid.lanes || unit >= grid.units || first + lane >= end) return;
    const WideWork work{static_cast<int32_t>(first) + lane, static_cast<int32_t>(end), grid.lanes,
                        unit};
    if constexpr (kPlain) {
      if (!item.wide.fraction.empty()) return RunWhole(item, arena, work);
    }
    WaitForEarlierKernels();
    RunRows(item, arena, work);
  }

  // What a thread computes: a unit of rows first, first + step, ... before end.
  struct WideWork {
    int32_t first;
    int32_t end;
    int32_t step;
    int32_t unit;
  };

  // Where a thread writes the first vector of a row.
  static PHASOR_HD std::byte* OutOf(const EncodeItem& item, const WideWork& work, int64_t row) {
    return item.out + row * item.out_row_bytes + int64_t{work.unit} * kVectorBytes +
           item.wide.first;
  }

  static PHASOR_HD void RunRows(const EncodeItem& item, const std::byte* arena,
                                const WideWork& work) {
    const WideRows& wide = item.wide;
    for (int64_t row = work.first; row < work.end; row += work.step) {
      const Position position = OnOneAxis(item, arena, row);
      SinCos<T> v[kPairs];
      PHASOR_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        v[i] = Components(item, arena, row, position, PairOf(wide, kPairs, work.unit, i));
      }
      std::byte* const out = OutOf(item, work, row);
      StoreWide(wide.order, v, out, out + (wide.second - wide.first));
    }
  }

  // The same for positions that are whole numbers, with code of its own for each order.
  static PHASOR_HD void RunWhole(const EncodeItem& item, const std::byte* arena,
                                 const WideWork& work) {
    using enum WideRows::Order;
    switch (item.wide.order) {
      case kInRuns:
        return RunInOrder(item, arena, work, kInRuns);
      case kSinCos:
        return RunInOrder(item, arena, work, kSinCos);
      case kCosSin:
        return RunInOrder(item, arena, work, kCosSin);
    }
  }

  // The phases of a thread's pairs at a row, plus kAdded, and what they grow by: in a range from
  // row to row, otherwise if the position grows by 1.
  struct Phases {
    uint64_t at[kPairs];
    uint64_t growth[kPairs];
  };
  static constexpr uint64_t kAdded = std::is_same_v<T, float> ? kSinCosOffset : 0;

  // `growth` is that of the position.
  static PHASOR_HD void Start(const EncodeItem& item, const std::byte* arena, int32_t unit,
                              uint64_t position, uint64_t growth, Phases& phases) {
    constexpr int kAtOnce = FractionsAtOnce(kPairs);
    const uint64_t* const fractions = item.wide.fraction.In(arena);
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; i += kAtOnce) {
      const uint64_t* const at = fractions + FractionAt(kPairs, item.wide_grid.units, unit, i);
      const auto words = LoadAligned<Words<8 * kAtOnce>>(reinterpret_cast<const std::byte*>(at));
      PHASOR_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const uint64_t fraction = words.word[2 * j] | uint64_t{words.word[2 * j + 1]} << 32;
        phases.at[i + j] = position * fraction + kAdded;
        phases.growth[i + j] = growth * fraction;
      }
    }
  }

  // In a range, each phase grows by the same number from row to row. Sums of integers are exact, so
  // the bits are those of RunRows.
  static PHASOR_HD void RunInOrder(const EncodeItem& item, const std::byte* arena,
                                   const WideWork& work, WideRows::Order order) {
    const ItemPositions& positions = item.positions;
    const bool range = positions.kind == PositionKind::kRange;
    const auto step = static_cast<uint64_t>(positions.range.step.whole);
    Phases phases;
    Start(item, arena, work.unit, static_cast<uint64_t>(WholeAt(positions, arena, work.first)),
          range ? step * static_cast<uint64_t>(work.step) : 1, phases);
    const T amplitude = static_cast<T>(item.amplitude), bias = static_cast<T>(item.cos_bias);
    const bool changed = amplitude != 1 || bias != 0;
    std::byte* out = OutOf(item, work, work.first);
    const int64_t apart = item.wide.second - item.wide.first;
    for (int32_t row = work.first;;) {
      SinCos<T> v[kPairs];
      PHASOR_UNROLL
      for (int i = 0; i < kPairs; ++i) v[i] = TrigOf(phases.at[i]);
      if (changed) {
        PHASOR_UNROLL
        for (int i = 0; i < kPairs; ++i) v[i] = Changed(v[i], amplitude, bias);
      }
      WaitForEarlierKernels();  // in every row: to ask whether it is the first takes longer
      StoreWide(order, v, out, out + apart);
      out += item.out_lanes_bytes;
      if (work.end - row <= work.step) return;
      row += work.step;
      if (range) {
        PHASOR_UNROLL
        for (int i = 0; i < kPairs; ++i) phases.at[i] += phases.growth[i];
      } else {
        const auto position = static_cast<uint64_t>(WholeAt(positions, arena, row));
        PHASOR_UNROLL
        for (int i = 0; i < kPairs; ++i) {
          phases.at[i] = position * phases.growth[i] + kAdded;
        }
      }
    }
  }

  // The sine and cosine of a phase plus kAdded.
  static PHASOR_HD SinCos<T> TrigOf(uint64_t phase) {
    if constexpr (std::is_same_v<T, float>) {
      return OffsetSinCos32(phase);
    } else {
      return Element::Trig(phase);
    }
  }

  // Writes the two vectors of a unit.
  static PHASOR_HD void StoreWide(WideRows::Order order, const SinCos<T> (&v)[kPairs],
                                  std::byte* first, std::byte* second) {
    const bool runs = order == WideRows::Order::kInRuns;
    T low[kPairs], high[kPairs];
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const SinCos<T> a = v[i / 2], b = v[kPairs / 2 + i / 2];  // side by side
      const bool sin = (order == WideRows::Order::kSinCos) == (i % 2 == 0);
      low[i] = runs ? v[i].sin : sin ? a.sin : a.cos;
      high[i] = runs ? v[i].cos : sin ? b.sin : b.cos;
    }
    StoreWords(PackLanes<Element>(low), first);
    StoreWords(PackLanes<Element>(high), second);
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
