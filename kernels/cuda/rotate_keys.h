// SPDX-License-Identifier: Apache-2.0
// Moves stored keys on a GPU through registers alone, as a rotation of tensors does (rotary.h): a
// row is a token, and its heads are those of all layers of an item. For dense rows of floats
// without scales of their own and without a Hadamard transform, where lanes move in kVectorBytes.
// Contract: kernels/ops/key_rows.h and kernels/ops/rotary.h. Threads: blocks of one launch write
// different bytes.
#ifndef PHASOR_KERNELS_CUDA_ROTATE_KEYS_H_
#define PHASOR_KERNELS_CUDA_ROTATE_KEYS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/keys.h"
#include "kernels/cuda/rotary.h"

namespace phasor::cuda {

struct RotateKeysItem : TurnedKeysItem {
  UnitLanes x_lanes, y_lanes;
  SmallDivisor head_units, pair_units;  // of a head: both are all of its units
};

PHASOR_HD int32_t HeadOf(const RotateKeysItem& item, int32_t plane_head) {
  return plane_head - Quotient(plane_head, item.heads) * item.heads.value;
}

template <KeyCode kCode>
struct RotateKeysBody : RotaryBody<KeyElement<kCode>, true, false, false> {
  using Item = RotateKeysItem;
  using Base = RotaryBody<KeyElement<kCode>, true, false, false>;
  static constexpr bool kOften = true;  // see launch.cu

  static PHASOR_HD void Find(const Item& item, const std::byte* arena, int64_t block, int thread,
                             typename Base::State& state) {
    const BlockUnits units = UnitsOf(item.grid, block);
    PHASOR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const int32_t i = step * kThreads + thread;
      typename Base::Unit& unit = state.units[step];
      unit.x = nullptr;
      if (i >= units.count) continue;
      const UnitAt at = UnitOf(item.grid, units, i);
      const int32_t plane_head = Quotient(at.unit, item.head_units);
      const int32_t part = at.unit - plane_head * item.head_units.value;
      const KeyUnit key = KeyUnitOf(item, arena, at.row, plane_head);
      Base::FindPairs(item.x_lanes, item.y_lanes, key.plane.x + key.x, key.plane.y + key.y, part,
                      unit);
      unit.angles = Base::AnglesOf(item, units, i, at.row, part);
    }
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ROTATE_KEYS_H_
