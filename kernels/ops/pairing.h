// SPDX-License-Identifier: Apache-2.0
// Which two lanes of a head form a pair.
#ifndef PHASOR_KERNELS_OPS_PAIRING_H_
#define PHASOR_KERNELS_OPS_PAIRING_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/math/phase.h"

namespace phasor {

// Pair j of n: lanes j and j + n, or lanes 2j and 2j + 1, or the first of these in each axis' block
// of lanes.
enum class Pairing : uint8_t { kHalfSplit, kInterleaved, kBlockHalfSplit };

// The pairs of each axis' block, in order.
using PairBlocks = std::array<int64_t, kMaxAxes>;

// The lane of component 0 or 1 of pair j, counted from the first lane that rotates. `pairs` and
// `blocks` are those of a head; blocks are read for kBlockHalfSplit only, and sum to `pairs`.
inline int64_t LaneOfPair(Pairing pairing, int64_t pairs, const PairBlocks& blocks, int64_t j,
                          int component) {
  if (pairing == Pairing::kInterleaved) return 2 * j + component;
  int64_t first = 0;  // pair of the block
  if (pairing == Pairing::kBlockHalfSplit) {
    size_t block = 0;
    while (j >= first + blocks[block]) first += blocks[block++];
    pairs = blocks[block];
  }
  return first + j + component * pairs;
}

inline bool PairsInBlocks(Pairing in, Pairing out) {
  return in == Pairing::kBlockHalfSplit || out == Pairing::kBlockHalfSplit;
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_PAIRING_H_
