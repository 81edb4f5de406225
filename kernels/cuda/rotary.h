// SPDX-License-Identifier: Apache-2.0
// Rotary on a GPU. Contract: kernels/ops/rotary.h, but pointers and strides must be multiples of
// the element's size, and MakeRotaryItem says which rotations in place it refuses.
//
// A block works in four phases:
//
//   Find    every thread finds where the lanes of its units are, up to kSteps of them
//   Angles  the threads compute the sines and cosines of the block's rows, once for all heads and
//           tensors, in memory that the block shares
//   Load    every thread reads the lanes of its units into registers
//   Finish  every thread rotates its lanes and writes them
//
// Find and Angles touch no tensor, so they run while an earlier kernel ends. launch.cu has the
// order of Angles and Load, and a barrier. If the pairing changes, the barrier comes after both, so
// that the block has read all lanes before it writes one. A head is never split between blocks. So
// a tensor may be rotated in place from one pairing to the other. Threads: blocks of one launch
// write different lanes.
#ifndef PHASOR_KERNELS_CUDA_ROTARY_H_
#define PHASOR_KERNELS_CUDA_ROTARY_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/in_arena.h"
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/positions.h"
#include "kernels/cuda/trig.h"
#include "kernels/cuda/turns.h"
#include "kernels/math/element.h"

namespace phasor::cuda {

// The distance in bytes from one batch entry, token or head to the next.
struct ViewStrides {
  int64_t batch = 0;
  int64_t token = 0;
  int64_t head = 0;
};

// Where the lanes of a head's rotating units are, in bytes from the head's begin.
struct UnitLanes {
  int32_t begin = 0;   // the first lanes of the first unit
  int32_t step = 0;    // from one unit to the next
  int32_t second = 0;  // from the first lanes of a unit to its second
};

// The lanes of units of `vector` pairs, in elements of `size` bytes.
inline UnitLanes UnitLanesOf(int64_t rotary_begin, int64_t pairs, bool split, int64_t vector,
                             int64_t size) {
  const auto bytes = [size](int64_t lanes) { return static_cast<int32_t>(lanes * size); };
  return {bytes(rotary_begin), bytes(split ? vector : 2 * vector), bytes(split ? pairs : vector)};
}

// One tensor of an item. Pointers are addresses on the device.
struct RotaryView {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  int32_t heads = 0;
  UnitLanes y_lanes;
  ViewStrides x_strides;
  ViewStrides y_strides;
  bool same_strides = false;      // y_strides are x_strides, and there are no y_offsets
  InArena<int64_t> y_offsets;     // [rows]: bytes from y, instead of y_strides; negative: skip
  Float8 float8 = Float8::kNone;  // of y, in kernels that write FLOAT8
  float inv_scale = 1;
  bool rotates = true;  // false: all lanes are copied
};

// The most tensors of an item: queries, keys, values and one more.
inline constexpr int kMostViews = 4;

// What a kernel computes for one job's slice. Rows are tokens: row r is token r % tokens of batch
// entry r / tokens. All views have one dtype. The units of a row are those of the first head of the
// first view, then those of the next head, and so on.
struct RotaryItem {
  ItemGrid grid;
  UnitLanes x_lanes;
  SmallDivisor head_units;
  SmallDivisor pair_units;  // the first units of a head rotate pairs, the others copy lanes
  SmallDivisor pairs;       // of a head; value 0: none
  int32_t angle_rows = 0;   // rows whose angles the threads of a block compute at once, if plain
  int32_t first_heads[kMostViews] = {};  // of each view, among the heads of all; 2^31 - 1: no view
  bool even = false;                     // every unit rotates, and is written as it is read
  bool early = false;                    // the barrier comes before Load
  bool loads_first = false;              // blocks that start late load before Angles (ADR 37)
  bool inverse = false;
  bool split_in = true;  // HALF_SPLIT, else INTERLEAVED
  bool split_out = true;
  bool own_angles = false;  // each unit of a block has angles of its own, else each pair of a row
  bool delta = false;       // from_positions and from_turns are set
  double amplitude = 1;
  ItemTurns turns;
  ItemPositions positions;
  RotaryView views[kMostViews];
  ItemTurns from_turns;
  ItemPositions from_positions;
  SmallDivisor tokens;
  int32_t rotary_begin = 0;
  int32_t lanes_apart = 0;  // lanes of a head that do not rotate and are copied
  int64_t head_pairs = 0;   // frequencies from one head to the next; 0: heads share them
};

// A head of a view.
struct HeadAt {
  const RotaryView& view;
  int32_t head;
};

PHASOR_HD HeadAt FindHead(const RotaryItem& item, int32_t head) {
  int view = 0;
  PHASOR_UNROLL
  for (int next = 1; next < kMostViews; ++next) view += head >= item.first_heads[next] ? 1 : 0;
  return {item.views[view], head - item.first_heads[view]};
}

// Which of a plan's heads head number `head` of a row is.
PHASOR_HD int32_t HeadOf(const RotaryItem& item, int32_t head) { return FindHead(item, head).head; }

// The most units of a block with angles of their own, and the most units of pairs in its rows
// otherwise.
inline constexpr int kAngleUnits = kThreads;

// kWide: a unit is twice kVectorBytes of lanes, else two lanes. kFloat8: all views write FLOAT8,
// else Elements. kPlain, for the most frequent rotations: the phase of a pair is one product, of
// its frequency and its position on one axis, which is a whole number; rows are of one batch entry;
// strides are below 2^32, and units fewer than 2^31. With kFloat8 positions must be
// simple, too: code for others needs more registers than four blocks have on sm_120.
//
// Other items than RotaryItem may rotate: their bodies derive from this one, find their own units,
// and say of which head a unit is (HeadOf).
template <typename Element, bool kWide, bool kFloat8, bool kPlain>
struct RotaryBody {
  using Item = RotaryItem;
  static constexpr bool kOften = kPlain;  // see launch.cu
  using T = typename Element::Math;
  static constexpr int kBytes = static_cast<int>(Element::kBytes);
  static constexpr int kOutBytes = kFloat8 ? 1 : kBytes;
  static constexpr int kPairs = kWide ? kVectorBytes / kBytes : 1;
  // Angles are read in vectors of so many. Vectors of neighbouring units are neighbours, so that
  // threads read them from different banks.
  static constexpr int kPart =
      kPairs * sizeof(T) >= kVectorBytes ? kVectorBytes / static_cast<int>(sizeof(T)) : kPairs;

  // What the threads of a block share.
  struct Shared {
    alignas(kVectorBytes) T sin[kAngleUnits * kPairs];
    alignas(kVectorBytes) T cos[kAngleUnits * kPairs];
  };

  // What a thread keeps from Find to Finish. A unit's lanes are one component each (half split), or
  // neighbours (interleaved, and lanes that are copied).
  using Lanes = Words<kPairs * kBytes>;
  using OutLanes = Words<kPairs * kOutBytes>;
  struct Unit {
    const std::byte* x = nullptr;  // its first lanes; nullptr: there is nothing to do
    std::byte* y;
    int32_t x_second;  // bytes from its first lanes to its second
    int32_t y_second;  // the same of y; 0: only the first are written
    int32_t angles;    // where its angles are; -1: it copies
    Float8 float8;     // for FLOAT8 only
    float inv_scale;
    Lanes first;
    Lanes second;
  };
  struct State {
    Unit units[kSteps];
  };

  static PHASOR_HD void Find(const Item& item, const std::byte* arena, int64_t block, int thread,
                             State& state) {
    const BlockUnits units = UnitsOf<kPlain>(item.grid, block);
    if (kPlain && item.even) return FindEven(item, units, thread, state);
    PHASOR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const int32_t i = step * kThreads + thread;
      state.units[step].x = nullptr;
      if (i < units.count) FindUnit(item, arena, units, i, state.units[step]);
    }
  }

  static PHASOR_HD void Load(State& state) {
    PHASOR_UNROLL
    for (Unit& unit : state.units) {
      if (unit.x == nullptr) continue;
      unit.first = LoadWords<kPairs * kBytes>(unit.x);
      unit.second = LoadWords<kPairs * kBytes>(unit.x + unit.x_second);
    }
  }

  template <typename Item>
  static PHASOR_HD void Angles(const Item& item, const std::byte* arena, int64_t block, int thread,
                               Shared& shared) {
    const BlockUnits units = UnitsOf<kPlain>(item.grid, block);
    if constexpr (kPlain) return PlainAngles(item, arena, units, thread, shared);
    const int32_t count =
        item.own_angles ? units.count : RowsOf(item, units) * item.pair_units.value;
    const auto end = static_cast<uint32_t>(count * kPairs);
    for (auto i = static_cast<uint32_t>(thread); i < end; i += kThreads) {
      const auto at = static_cast<int32_t>(i / kPairs);
      const auto pair = static_cast<int32_t>(i % kPairs);
      SinCos<T> v;
      if (!AngleOf(item, arena, units, at, pair, v)) continue;
      shared.sin[PlaceOf(at, pair)] = v.sin;
      shared.cos[PlaceOf(at, pair)] = v.cos;
    }
  }

  template <typename Item>
  static PHASOR_HD void Finish(const Item& item, const Shared& shared, const State& state) {
    PHASOR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const Unit& unit = state.units[step];
      if (unit.x == nullptr) continue;
      if (unit.angles >= 0) {
        Rotate(item, shared, unit);
      } else {
        Store(unit, Converted(unit, unit.first), Converted(unit, unit.second));
      }
    }
  }

 protected:
  template <typename Item>
  static PHASOR_HD void PlainAngles(const Item& item, const std::byte* arena,
                                    const BlockUnits& units, int thread, Shared& shared) {
    const ItemPositions& positions = item.positions;
    if (kFloat8 || positions.simple) {
      return PlainAngles(item, arena, units, thread, shared, [&](int64_t row, int32_t) {
        return WholePosition(positions, arena, row);
      });
    }
    PlainAngles(item, arena, units, thread, shared, [&](int64_t row, int32_t pair) {
      const int axis = item.turns.axis.empty() ? 0 : item.turns.axis.In(arena)[pair];
      return WholeOnAxis(positions, arena, row, axis);
    });
  }

  // A thread has one pair of every few rows, and keeps its frequency.
  template <typename Item, typename PositionAt>
  static PHASOR_HD void PlainAngles(const Item& item, const std::byte* arena,
                                    const BlockUnits& units, int thread, Shared& shared,
                                    const PositionAt& position_at) {
    const int32_t first = Quotient(thread, item.pairs);
    if (first >= item.angle_rows) return;
    const int32_t pair = thread - first * item.pairs.value, rows = RowsOf(item, units);
    const uint64_t fraction = item.turns.frequency.In(arena)[pair].fraction;
    const uint64_t turn = item.inverse ? -fraction : fraction;
    int place = PlaceOf(first * item.pair_units.value + pair / kPairs, pair % kPairs);
    for (int32_t r = first; r < rows; r += item.angle_rows) {
      const int64_t position = position_at(units.row + r, pair);
      const SinCos<T> v =
          ScaledTrig<Element>(static_cast<uint64_t>(position) * turn, item.amplitude);
      shared.sin[place] = v.sin;
      shared.cos[place] = v.cos;
      place += item.angle_rows * item.pair_units.value * kPart;
    }
  }

  template <typename Item>
  static PHASOR_HD int32_t RowsOf(const Item& item, const BlockUnits& units) {
    return Quotient(units.first + units.count - 1, item.grid.units) + 1;
  }

  // The same for an even item, without choices, so that a GPU finds both units at once.
  static PHASOR_HD void FindEven(const Item& item, const BlockUnits& units, int thread,
                                 State& state) {
    PHASOR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const int32_t i = step * kThreads + thread;
      const UnitAt at = UnitOf(item.grid, units, i);
      const int32_t head_of_all = Quotient(at.unit, item.head_units);
      const int32_t part = at.unit - head_of_all * item.head_units.value;
      const HeadAt found = FindHead(item, head_of_all);
      const int64_t offset = Offset(found.view.x_strides, item.tokens, at.row, found.head) +
                             (item.x_lanes.begin + part * item.x_lanes.step);
      Unit& unit = state.units[step];
      unit.x = i < units.count ? found.view.x + offset : nullptr;
      unit.y = found.view.y + offset;
      unit.x_second = unit.y_second = item.x_lanes.second;
      unit.angles = AnglesOf(item, units, i, at.row, part);
    }
  }

  static PHASOR_HD void FindUnit(const Item& item, const std::byte* arena, const BlockUnits& units,
                                 int32_t i, Unit& unit) {
    const UnitAt at = UnitOf(item.grid, units, i);
    const int32_t head_of_all = Quotient(at.unit, item.head_units);
    const int32_t part = at.unit - head_of_all * item.head_units.value;
    const HeadAt found = FindHead(item, head_of_all);
    const RotaryView& view = found.view;
    const int64_t x_offset = Offset(view.x_strides, item.tokens, at.row, found.head);
    int64_t y_offset = x_offset;
    if (!view.same_strides) {
      y_offset = Offset(view.y_strides, item.tokens, at.row, found.head);
      if (!view.y_offsets.empty()) {
        const int64_t slot = view.y_offsets.In(arena)[at.row];
        if (slot < 0) return;
        y_offset = slot + found.head * view.y_strides.head;
      }
    }
    const std::byte* const x = view.x + x_offset;
    std::byte* const y = view.y + y_offset;
    unit.float8 = view.float8;
    unit.inv_scale = view.inv_scale;
    if (part < item.pair_units.value) {
      FindPairs(item.x_lanes, view.y_lanes, x, y, part, unit);
      if (view.rotates) unit.angles = AnglesOf(item, units, i, at.row, part);
    } else if (view.x != view.y) {
      FindApart(item, x, y, part - item.pair_units.value, unit);
    }
  }

  // kPairs pairs of a head.
  static PHASOR_HD void FindPairs(const UnitLanes& x_lanes, const UnitLanes& y_lanes,
                                  const std::byte* x, std::byte* y, int32_t part, Unit& unit) {
    unit.x = x + (x_lanes.begin + part * x_lanes.step);
    unit.y = y + (y_lanes.begin + part * y_lanes.step);
    unit.x_second = x_lanes.second;
    unit.y_second = y_lanes.second;
    unit.angles = -1;
  }

  // 2 * kPairs of the lanes that do not rotate, or kPairs if there are no more.
  static PHASOR_HD void FindApart(const Item& item, const std::byte* x, std::byte* y, int32_t part,
                                  Unit& unit) {
    const int32_t i = part * 2 * kPairs, first = LaneApart(item, i);
    const int32_t second = i + kPairs < item.lanes_apart ? LaneApart(item, i + kPairs) : first;
    unit.x = x + first * kBytes;
    unit.y = y + first * kOutBytes;
    unit.x_second = (second - first) * kBytes;
    unit.y_second = (second - first) * kOutBytes;
    unit.angles = -1;
  }
  static PHASOR_HD int32_t LaneApart(const Item& item, int32_t i) {
    return i < item.rotary_begin ? i : i + 2 * item.pairs.value;
  }

  // Bytes from a view's begin to a head.
  static PHASOR_HD int64_t Offset(const ViewStrides& strides, const SmallDivisor& tokens,
                                  int64_t row, int32_t head) {
    if constexpr (kPlain) {
      return static_cast<int64_t>(
          uint64_t{static_cast<uint32_t>(row)} * static_cast<uint32_t>(strides.token) +
          uint64_t{static_cast<uint32_t>(head)} * static_cast<uint32_t>(strides.head));
    }
    const int32_t entry = Quotient(static_cast<int32_t>(row), tokens);
    const int32_t token = static_cast<int32_t>(row) - entry * tokens.value;
    return entry * strides.batch + token * strides.token + head * strides.head;
  }

  // Where the angle of a pair of unit `at` is in Shared.
  static PHASOR_HD int PlaceOf(int32_t at, int pair) {
    return (pair / kPart * kAngleUnits + at) * kPart + pair % kPart;
  }

  // Where the angles of unit i of a block are, which is part `part` of a head.
  template <typename Item>
  static PHASOR_HD int32_t AnglesOf(const Item& item, const BlockUnits& units, int32_t i,
                                    int64_t row, int32_t part) {
    if (!kPlain && item.own_angles) return i;
    return static_cast<int32_t>(row - units.row) * item.pair_units.value + part;
  }

  // The sine and cosine of a pair of unit `at`. False: the unit does not rotate.
  template <typename Item>
  static PHASOR_HD bool AngleOf(const Item& item, const std::byte* arena, const BlockUnits& units,
                                int32_t at, int pair, SinCos<T>& v) {
    int64_t row, j;
    if (item.own_angles) {
      const UnitAt unit = UnitOf(item.grid, units, at);
      const int32_t head_of_all = Quotient(unit.unit, item.head_units);
      const int32_t part = unit.unit - head_of_all * item.head_units.value;
      if (part >= item.pair_units.value) return false;
      row = unit.row;
      j = HeadOf(item, head_of_all) * item.head_pairs + part * kPairs + pair;
    } else {
      const int32_t r = Quotient(at, item.pair_units);
      row = units.row + r;
      j = (at - r * item.pair_units.value) * int64_t{kPairs} + pair;
    }
    v = TrigOfRow<Element>(item, arena, row, j);
    return true;
  }

  // Lane i of the 2 * kPairs lanes of a unit.
  static PHASOR_HD T LaneAt(const Unit& unit, int i) {
    return i < kPairs ? LaneOf<Element>(unit.first, i) : LaneOf<Element>(unit.second, i - kPairs);
  }

  template <typename Item>
  static PHASOR_HD void Rotate(const Item& item, const Shared& shared, const Unit& unit) {
    if (item.split_in && item.split_out) {
      RotatePairs<true>(item, shared, unit);
    } else {
      RotatePairs<false>(item, shared, unit);
    }
  }

  // The lanes of pair i are i and kPairs + i, or 2i and 2i + 1. kSplit: the former before and
  // after, as in most models; else the item says.
  template <bool kSplit, typename Item>
  static PHASOR_HD void RotatePairs(const Item& item, const Shared& shared, const Unit& unit) {
    const bool split_in = kSplit || item.split_in, split_out = kSplit || item.split_out;
    T y1[kPairs], y2[kPairs];
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const T sin = shared.sin[PlaceOf(unit.angles, i)], cos = shared.cos[PlaceOf(unit.angles, i)];
      const T x1 = split_in ? LaneAt(unit, i) : LaneAt(unit, 2 * i);
      const T x2 = split_in ? LaneAt(unit, kPairs + i) : LaneAt(unit, 2 * i + 1);
      y1[i] = std::fma(-x2, sin, x1 * cos);
      y2[i] = std::fma(x2, cos, x1 * sin);
    }
    T first[kPairs], second[kPairs];
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      first[i] = split_out ? y1[i] : i % 2 == 0 ? y1[i / 2] : y2[i / 2];
      const int k = kPairs + i;
      second[i] = split_out ? y2[i] : k % 2 == 0 ? y1[k / 2] : y2[k / 2];
    }
    Store(unit, Packed(unit, first), Packed(unit, second));
  }

  static PHASOR_HD OutLanes Packed(const Unit& unit, const T (&values)[kPairs]) {
    if constexpr (kFloat8) {
      return PackFloat8Lanes(values, unit.inv_scale, unit.float8);
    } else {
      return PackLanes<Element>(values);
    }
  }

  // Lanes that are copied. Bits are kept unless the type changes.
  static PHASOR_HD OutLanes Converted(const Unit& unit, const Lanes& lanes) {
    if constexpr (kFloat8) {
      T values[kPairs];
      PHASOR_UNROLL
      for (int i = 0; i < kPairs; ++i) values[i] = LaneOf<Element>(lanes, i);
      return Packed(unit, values);
    } else {
      return lanes;
    }
  }

  static PHASOR_HD void Store(const Unit& unit, const OutLanes& first, const OutLanes& second) {
    StoreWords(first, unit.y);
    if (unit.y_second != 0) StoreWords(second, unit.y + unit.y_second);
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ROTARY_H_
