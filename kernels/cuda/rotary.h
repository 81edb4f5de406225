// SPDX-License-Identifier: Apache-2.0
// Rotary on a GPU. Contract: kernels/ops/rotary.h, with two restrictions, which chunk.cc keeps
// (with JobRows::aligned and JobRows::copies): pointers and strides are multiples of the element's
// size, and a view that rotates has y == x only if its pairings are equal. The sines and cosines of
// a unit's pairs are computed in registers and shared by its heads; memory holds none of them.
// Threads: bodies of one launch write different lanes.
#ifndef PHASOR_KERNELS_CUDA_ROTARY_H_
#define PHASOR_KERNELS_CUDA_ROTARY_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/positions.h"
#include "kernels/cuda/turns.h"
#include "kernels/math/element.h"

namespace phasor::cuda {

// The distance in bytes from one batch entry, token or head to the next.
struct ViewStrides {
  int64_t batch = 0;
  int64_t token = 0;
  int64_t head = 0;
};

// One tensor of an item. Pointers are addresses on the device.
struct RotaryView {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  int64_t heads = 0;
  ViewStrides x_strides;
  ViewStrides y_strides;
  const int64_t* y_offsets = nullptr;  // [rows]: bytes from y, instead of y_strides; negative: skip
  Float8 float8 = Float8::kNone;       // of y, in kernels that write FLOAT8
  float inv_scale = 1;
  bool rotates = true;  // false: all lanes are copied
};

// What a kernel computes for one job's slice. Rows are tokens: row r is token r % tokens of batch
// entry r / tokens. All views have one dtype.
struct RotaryItem {
  ItemGrid grid;
  ItemPositions positions;
  ItemTurns turns;
  bool delta = false;  // from_positions and from_turns are set
  bool inverse = false;
  bool split_in = true;  // HALF_SPLIT, else INTERLEAVED
  bool split_out = true;
  ItemPositions from_positions;
  ItemTurns from_turns;
  double amplitude = 1;
  Divisor tokens;
  int64_t rotary_begin = 0;
  int32_t pairs = 0;        // of a head
  int32_t lanes_apart = 0;  // lanes of a head that do not rotate and are copied; 0 in place
  bool own_turns = false;   // each head has its own frequencies
  int64_t head_pairs = 0;   // from one such head to the next
  int64_t heads_per_unit = 1;
  int32_t pair_units = 0;  // units of one group of heads_per_unit heads
  int32_t turn_units = 0;  // units that rotate; each further unit copies one lane of all heads
  const RotaryView* views = nullptr;
  int32_t view_count = 0;
};

// kWide: a unit is as many pairs as kVectorBytes holds elements, else one pair. kPlain: one axis
// and layer, no xPos, no delta. kFloat8: all views write FLOAT8, else Elements.
template <typename Element, bool kWide, bool kPlain, bool kFloat8>
struct RotaryBody {
  using Item = RotaryItem;
  using T = typename Element::Math;
  static constexpr int kBytes = static_cast<int>(Element::kBytes);
  static constexpr int kOutBytes = kFloat8 ? 1 : kBytes;
  static constexpr int kPairs = kWide ? kVectorBytes / kBytes : 1;

  struct Trig {
    T sin[kPairs];
    T cos[kPairs];
  };
  // The lanes of a unit: one component each (half split), or in their order (interleaved).
  template <int kLaneBytes>
  struct LanesOf {
    alignas(kPairs* kLaneBytes) std::byte first[kPairs * kLaneBytes];
    alignas(kPairs* kLaneBytes) std::byte second[kPairs * kLaneBytes];
  };
  using Lanes = LanesOf<kBytes>;
  using OutLanes = LanesOf<kOutBytes>;
  // For FLOAT8 only.
  struct Rounding {
    Float8 float8;
    float inv_scale;
  };

  static PHASOR_HD void Run(const RotaryItem& item, int64_t block, int thread) {
    ForEachUnit(item.grid, block, thread, [&](int64_t row, int32_t unit) {
      if (unit < item.turn_units) {
        Turn(item, row, unit / item.pair_units, unit % item.pair_units * kPairs);
      } else {
        CopyLane(item, row, unit - item.turn_units);
      }
    });
  }

 private:
  // Rotates pairs [j, j + kPairs) of a group of heads.
  static PHASOR_HD void Turn(const RotaryItem& item, int64_t row, int64_t group, int64_t j) {
    const bool split_in = item.split_in, split_out = item.split_out, own_turns = item.own_turns;
    const int64_t second_in = split_in ? item.pairs : kPairs;  // lanes from first to second
    const int64_t second_out = split_out ? item.pairs : kPairs;
    const int64_t at_in = item.rotary_begin + (split_in ? j : 2 * j);
    const int64_t at_out = item.rotary_begin + (split_out ? j : 2 * j);
    const int64_t begin = group * item.heads_per_unit, end = begin + item.heads_per_unit;
    Trig trig;
    bool known = false;
    int64_t passed = 0;  // heads of the views before this one
    for (int32_t i = 0; i < item.view_count; ++i) {
      // A reference: of a copy, nvcc would not know which memory the pointers point to.
      const RotaryView& view = item.views[i];
      const int64_t heads = view.heads, x_head = view.x_strides.head, y_head = view.y_strides.head;
      const bool rotates = view.rotates;
      const Rounding rounding{view.float8, view.inv_scale};
      const int64_t y_offset = YOffset(view, item.tokens, row);
      const int64_t at_y = rotates ? at_out : at_in;
      const int64_t second_y = rotates ? second_out : second_in;
      const std::byte* const x = view.x + Offset(view.x_strides, item.tokens, row) + at_in * kBytes;
      std::byte* const y = view.y + y_offset + at_y * kOutBytes;
      const int64_t last = end - passed < heads ? end - passed : heads;
      for (int64_t h = begin > passed ? begin - passed : 0; h < last && y_offset >= 0; ++h) {
        if (rotates && (!known || own_turns)) {
          trig = PairTrig(item, row, own_turns ? h * item.head_pairs + j : j);
          known = true;
        }
        Lanes lanes;
        OutLanes out;
        Load(x + h * x_head, second_in, lanes);
        if (rotates) {
          Rotate(trig, split_in, split_out, rounding, lanes, out);
        } else {
          Copy(rounding, lanes, out);
        }
        Store(out, second_y, y + h * y_head);
      }
      passed += heads;
    }
  }

  // Bytes from the view's y to a row; negative: the row is not written.
  static PHASOR_HD int64_t YOffset(const RotaryView& view, const Divisor& tokens, int64_t row) {
    return view.y_offsets != nullptr ? view.y_offsets[row] : Offset(view.y_strides, tokens, row);
  }

  static PHASOR_HD int64_t Offset(const ViewStrides& strides, const Divisor& tokens, int64_t row) {
    const int64_t entry = Quotient(row, tokens);
    return entry * strides.batch + (row - entry * tokens.value) * strides.token;
  }

  static PHASOR_HD Trig PairTrig(const RotaryItem& item, int64_t row, int64_t first) {
    Trig trig;
    Position position;
    if constexpr (kPlain) position = PositionOf(item.positions, row, 0);
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const SinCos<T> v = OneTrig(item, row, position, first + i);
      trig.sin[i] = v.sin;
      trig.cos[i] = v.cos;
    }
    return trig;
  }

  static PHASOR_HD SinCos<T> OneTrig(const RotaryItem& item, int64_t row, Position position,
                                     int64_t pair) {
    if constexpr (kPlain) {
      const uint64_t phase = PhaseOnOneAxis(item.turns, pair, position);
      return scalar::ScaledTrig<Element>(item.inverse ? -phase : phase, item.amplitude);
    } else {
      uint64_t phase = PhaseOfRow(item.turns, item.positions, pair, row);
      Exponent exponent = ExponentOfRow(item.turns, item.positions, pair, row);
      if (item.delta) {
        phase -= PhaseOfRow(item.from_turns, item.from_positions, pair, row);
        exponent -= ExponentOfRow(item.from_turns, item.from_positions, pair, row);
      }
      double amplitude = item.amplitude;
      if (item.turns.xpos_rate != nullptr || item.from_turns.xpos_rate != nullptr) {
        amplitude *= Exp2(item.inverse ? -exponent : exponent);
      }
      return scalar::ScaledTrig<Element>(item.inverse ? -phase : phase, amplitude);
    }
  }

  // Lane i of the 2 * kPairs lanes of a unit.
  static PHASOR_HD T LoadLane(const Lanes& lanes, int i) {
    return Element::Load(i < kPairs ? lanes.first + i * kBytes
                                    : lanes.second + (i - kPairs) * kBytes);
  }
  static PHASOR_HD void StoreLane(const Rounding& rounding, T value, OutLanes& lanes, int i) {
    StoreOut(rounding, value,
             i < kPairs ? lanes.first + i * kOutBytes : lanes.second + (i - kPairs) * kOutBytes);
  }
  static PHASOR_HD void StoreOut(const Rounding& rounding, T value, std::byte* y) {
    if constexpr (kFloat8) {
      *y = scalar::ScaledFloat8(value, rounding.inv_scale, rounding.float8);
    } else {
      Element::Store(value, y);
    }
  }

  static PHASOR_HD void Copy(const Rounding& rounding, const Lanes& lanes, OutLanes& out) {
    if constexpr (kFloat8) {
      PHASOR_UNROLL
      for (int i = 0; i < 2 * kPairs; ++i) StoreLane(rounding, LoadLane(lanes, i), out, i);
    } else {
      out = lanes;
    }
  }

  // The lanes of pair i are i and kPairs + i, or 2i and 2i + 1.
  static PHASOR_HD void Rotate(const Trig& trig, bool split_in, bool split_out,
                               const Rounding& rounding, const Lanes& lanes, OutLanes& out) {
    T y1[kPairs], y2[kPairs];
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const T x1 = split_in ? LoadLane(lanes, i) : LoadLane(lanes, 2 * i);
      const T x2 = split_in ? LoadLane(lanes, kPairs + i) : LoadLane(lanes, 2 * i + 1);
      y1[i] = std::fma(-x2, trig.sin[i], x1 * trig.cos[i]);
      y2[i] = std::fma(x2, trig.cos[i], x1 * trig.sin[i]);
    }
    PHASOR_UNROLL
    for (int i = 0; i < 2 * kPairs; ++i) {
      const T split = i < kPairs ? y1[i % kPairs] : y2[i % kPairs];
      const T interleaved = i % 2 == 0 ? y1[i / 2] : y2[i / 2];
      StoreLane(rounding, split_out ? split : interleaved, out, i);
    }
  }

  static PHASOR_HD void Load(const std::byte* x, int64_t second, Lanes& lanes) {
    constexpr int kSize = kPairs * kBytes;
    std::memcpy(lanes.first, __builtin_assume_aligned(x, kSize), kSize);
    std::memcpy(lanes.second, __builtin_assume_aligned(x + second * kBytes, kSize), kSize);
  }

  static PHASOR_HD void Store(const OutLanes& lanes, int64_t second, std::byte* y) {
    constexpr int kSize = kPairs * kOutBytes;
    std::memcpy(__builtin_assume_aligned(y, kSize), lanes.first, kSize);
    std::memcpy(__builtin_assume_aligned(y + second * kOutBytes, kSize), lanes.second, kSize);
  }

  // Copies lane i of those that do not rotate, for every head of views that are not in place.
  static PHASOR_HD void CopyLane(const RotaryItem& item, int64_t row, int64_t i) {
    const int64_t lane = i < item.rotary_begin ? i : i + 2 * item.pairs;
    for (int32_t v = 0; v < item.view_count; ++v) {
      const RotaryView& view = item.views[v];
      const int64_t heads = view.heads, x_head = view.x_strides.head, y_head = view.y_strides.head;
      const Rounding rounding{view.float8, view.inv_scale};
      const int64_t y_offset = YOffset(view, item.tokens, row);
      if (view.x == view.y || y_offset < 0) continue;
      const std::byte* const x = view.x + Offset(view.x_strides, item.tokens, row) + lane * kBytes;
      std::byte* const y = view.y + y_offset + lane * kOutBytes;
      for (int64_t h = 0; h < heads; ++h) {
        const std::byte* const from = x + h * x_head;
        std::byte* const to = y + h * y_head;
        if constexpr (kFloat8) {
          StoreOut(rounding, LoadElement<Element>(from), to);
        } else {
          std::memcpy(__builtin_assume_aligned(to, kBytes), __builtin_assume_aligned(from, kBytes),
                      kBytes);
        }
      }
    }
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ROTARY_H_
