// SPDX-License-Identifier: Apache-2.0
// Compares stored keys on a GPU with what a move of others would give. Contract:
// kernels/ops/key_difference.h.
//
// A block works as that of MoveKeysBody up to the encoded bytes. Instead of storing them, it
// decodes them, loads and decodes the other rows, and sums up each head by one thread, in the order
// of its lanes. Threads: blocks of one launch write different bytes.
#ifndef PHASOR_KERNELS_CUDA_COMPARE_KEYS_H_
#define PHASOR_KERNELS_CUDA_COMPARE_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/host_device.h"
#include "kernels/cuda/move_keys.h"
#include "kernels/ops/key_difference.h"

namespace phasor::cuda {

// Compares rows with what a move of others would give. The window is all lanes.
struct CompareKeysItem : MoveKeysItem {
  bool moves = true;          // false: rows are compared as they are
  int32_t first_changed = 0;  // the lanes that a move writes
  int32_t end_changed = 0;
  double value_scale = 1;    // of all lanes
  InArena<int64_t> results;  // [tokens]: bytes from `out` to a token's RowDifferences
  std::byte* out = nullptr;
};

template <KeyCode kCode>
struct CompareKeysBody : MoveKeysBody<kCode> {
  using Item = CompareKeysItem;
  using Move = MoveKeysBody<kCode>;
  struct Shared : Move::Shared {
    float found[kKeyLanes + kKeyLanes / 32];
  };

  static PHASOR_HD int StepsOf(const Item& item) {
    return StepsToMoved(item) + 4 + 2 * item.hadamard_bits;
  }

  static PHASOR_HD void Run(const Item& item, const std::byte* arena, int64_t block, int thread,
                            int step, Shared& shared) {
    const typename Move::Block at{item, arena, UnitsOf(item.grid, block), thread};
    const int moved = StepsToMoved(item), bits = item.hadamard_bits;
    if (step < moved) {
      if (item.moves) {
        return Move::template Encoded<false>(at, step, item.first_changed, item.end_changed,
                                             shared);
      }
      if (step == 0) Move::FindUnits(at, shared);
      if (step == 1) Move::template Load<true>(at, shared);
      return;
    }
    step -= moved;
    if (step == 0) return Move::Decode(at, true, shared, shared.lanes);
    if (step <= bits) return Move::Butterflies(at, step - 1, true, shared.lanes);
    step -= bits;
    if (step == 1) return Move::template Load<false>(at, shared);
    if (step == 2) return Move::Decode(at, true, shared, shared.found);
    if (step <= 2 + bits) return Move::Butterflies(at, step - 3, true, shared.found);
    Sum(item, at, shared);
  }

 private:
  // The steps after which shared.bytes are what a move would store.
  static PHASOR_HD int StepsToMoved(const Item& item) {
    return item.moves ? Move::StepsToEncode(item) : 2;
  }

  static PHASOR_HD void Sum(const Item& item, const typename Move::Block& at,
                            const Shared& shared) {
    const KeyPlaces places = Move::PlacesOf(item, true);
    for (int32_t unit = at.thread; unit < at.units.count; unit += kThreads) {
      RowDifference row;
      for (int32_t i = 0; i < item.lanes.value; ++i) {
        const int32_t place = places.At(unit, i);
        row.Add(static_cast<double>(shared.lanes[place]) * item.value_scale,
                static_cast<double>(shared.found[place]) * item.value_scale);
      }
      const KeyUnit key = Move::Find(at, unit);
      std::byte* const out = item.out + item.results.In(at.arena)[key.row] + key.plane.result +
                             key.head * static_cast<int64_t>(sizeof row);
      std::memcpy(Aligned<alignof(RowDifference)>(out), &row, sizeof row);
    }
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_COMPARE_KEYS_H_
