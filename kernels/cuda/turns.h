// SPDX-License-Identifier: Apache-2.0
// How far pairs turn at a position, as a kernel reads it: a plan's tables in plain pointers, in the
// order of the pairs. A pair's phase is the same sum of integers that kernels/reference computes.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_TURNS_H_
#define PHASOR_KERNELS_CUDA_TURNS_H_

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/positions.h"
#include "kernels/math/phase.h"
#include "kernels/math/xpos.h"

namespace phasor::cuda {

// Pointers are addresses on the device.
struct ItemTurns {
  int64_t pairs = 0;
  int32_t layers = 1;
  bool xpos_inverse = false;
  const Frequency* frequency = nullptr;  // [layers, pairs]
  const uint8_t* axis = nullptr;         // [layers, pairs]; nullptr: axis 0 for all
  const uint64_t* offset = nullptr;      // [pairs]; nullptr: zeros
  const uint64_t* xpos_rate = nullptr;   // [pairs]; nullptr: no xPos
  Position xpos_center;
};

// The phase of pair j at position p, if one axis turns all pairs. Most positions are whole numbers,
// which need one product instead of three.
PHASOR_HD uint64_t PhaseOnOneAxis(const ItemTurns& turns, int64_t j, Position p) {
  const Frequency frequency = turns.frequency[j];
  const uint64_t phase =
      p.fraction == 0 ? static_cast<uint64_t>(p.whole) * frequency.fraction : PhaseOf(p, frequency);
  return turns.offset == nullptr ? phase : turns.offset[j] + phase;
}

// The phase of pair j at a row, with any axes and layers.
PHASOR_HD uint64_t PhaseOfRow(const ItemTurns& turns, const ItemPositions& positions, int64_t j,
                              int64_t row) {
  uint64_t phase = turns.offset == nullptr ? 0 : turns.offset[j];
  for (int32_t layer = 0; layer < turns.layers; ++layer) {
    const int64_t i = layer * turns.pairs + j;
    const int axis = turns.axis == nullptr ? 0 : turns.axis[i];
    phase += PhaseOf(PositionOf(positions, row, axis), turns.frequency[i]);
  }
  return phase;
}

// log2 of the xPos amplitude of pair j at a row, times 2^64.
PHASOR_HD Exponent ExponentOfRow(const ItemTurns& turns, const ItemPositions& positions, int64_t j,
                                 int64_t row) {
  if (turns.xpos_rate == nullptr) return 0;
  return XposExponent(PositionOf(positions, row, 0), turns.xpos_center, turns.xpos_rate[j],
                      turns.xpos_inverse);
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_TURNS_H_
