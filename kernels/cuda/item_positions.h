// SPDX-License-Identifier: Apache-2.0
// Puts the positions of a slice of rows into an item and its arena. Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_ITEM_POSITIONS_H_
#define PHASOR_KERNELS_CUDA_ITEM_POSITIONS_H_

#include "kernels/backend/batch.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/items.h"
#include "kernels/cuda/positions.h"
#include "kernels/tensor/positions.h"

namespace phasor::cuda {

// Whether all positions are whole numbers.
bool AreWhole(const PositionSource& source);

// Whether WholePosition gives the positions.
bool AreSimple(const PositionSource& source);

// The positions of `slice` in the source; rows after it start again at its beginning.
ItemPositions MakePositions(const PositionSource& source, Slice slice, Arena& arena);

// The positions of a slice of tokens. Batch entries may share them.
ItemPositions MakeTokenPositions(const RotaryJob& job, const PositionSource& source, Slice slice,
                                 Arena& arena);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ITEM_POSITIONS_H_
