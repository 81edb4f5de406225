// SPDX-License-Identifier: Apache-2.0
// How far pairs turn at a position, as a kernel reads it: a plan's tables, in the order of the
// pairs. A pair's phase is the same sum of integers that kernels/reference computes.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_TURNS_H_
#define PHASOR_KERNELS_CUDA_TURNS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/in_arena.h"
#include "kernels/cuda/positions.h"
#include "kernels/cuda/trig.h"
#include "kernels/math/phase.h"
#include "kernels/math/xpos.h"

namespace phasor::cuda {

struct ItemTurns {
  int64_t pairs = 0;
  int32_t layers = 1;
  bool xpos_inverse = false;
  InArena<Frequency> frequency;  // [layers, pairs]
  InArena<uint8_t> axis;         // [layers, pairs]; empty: axis 0 for all
  InArena<uint64_t> offset;      // [pairs]; empty: zeros
  InArena<uint64_t> xpos_rate;   // [pairs]; empty: no xPos
  Position xpos_center;
};

// The phase of a pair at position p, if one axis turns all pairs. Most positions are whole numbers,
// which need one product instead of three.
PHASOR_HD uint64_t PhaseAt(Frequency frequency, Position p) {
  if (p.fraction != 0) return PhaseOf(p, frequency);
  return static_cast<uint64_t>(p.whole) * frequency.fraction;
}

PHASOR_HD uint64_t OffsetOf(const ItemTurns& turns, const std::byte* arena, int64_t j) {
  return turns.offset.empty() ? 0 : turns.offset.In(arena)[j];
}

// The phase of pair j at a row, with any axes and layers. Positions have a PositionOf.
template <typename Positions>
PHASOR_HD uint64_t PhaseOfRow(const ItemTurns& turns, const Positions& positions,
                              const std::byte* arena, int64_t j, int64_t row) {
  if (turns.layers == 1 && turns.axis.empty() && turns.offset.empty()) {  // most models
    return PhaseAt(turns.frequency.In(arena)[j], PositionOf(positions, arena, row, 0));
  }
  uint64_t phase = OffsetOf(turns, arena, j);
  for (int32_t layer = 0; layer < turns.layers; ++layer) {
    const int64_t i = layer * turns.pairs + j;
    const int axis = turns.axis.empty() ? 0 : turns.axis.In(arena)[i];
    phase += PhaseAt(turns.frequency.In(arena)[i], PositionOf(positions, arena, row, axis));
  }
  return phase;
}

// log2 of the xPos amplitude of pair j at a row, times 2^64.
template <typename Positions>
PHASOR_HD Exponent ExponentOfRow(const ItemTurns& turns, const Positions& positions,
                                 const std::byte* arena, int64_t j, int64_t row) {
  if (turns.xpos_rate.empty()) return 0;
  return XposExponent(PositionOf(positions, arena, row, 0), turns.xpos_center,
                      turns.xpos_rate.In(arena)[j], turns.xpos_inverse);
}

// The sine and cosine of a pair at a row of an item, times the amplitude. In a delta, those of the
// difference from the item's other turns and positions.
template <typename Element, typename Item>
PHASOR_HD SinCos<typename Element::Math> TrigOfRow(const Item& item, const std::byte* arena,
                                                   int64_t row, int64_t pair) {
  uint64_t phase = PhaseOfRow(item.turns, item.positions, arena, pair, row);
  double amplitude = item.amplitude;
  if (item.delta) phase -= PhaseOfRow(item.from_turns, item.from_positions, arena, pair, row);
  if (!item.turns.xpos_rate.empty() || !item.from_turns.xpos_rate.empty()) {
    Exponent exponent = ExponentOfRow(item.turns, item.positions, arena, pair, row);
    if (item.delta) {
      exponent -= ExponentOfRow(item.from_turns, item.from_positions, arena, pair, row);
    }
    amplitude *= Exp2(item.inverse ? -exponent : exponent);
  }
  return ScaledTrig<Element>(item.inverse ? -phase : phase, amplitude);
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_TURNS_H_
