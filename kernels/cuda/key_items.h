// SPDX-License-Identifier: Apache-2.0
// Makes the items of moves of keys (kernels/cuda/keys.h) for rows of a move (move_rows.h).
#ifndef PHASOR_KERNELS_CUDA_KEY_ITEMS_H_
#define PHASOR_KERNELS_CUDA_KEY_ITEMS_H_

#include "kernels/backend/batch.h"
#include "kernels/cuda/items.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/move_rows.h"

namespace phasor::cuda {

// Whether the kernels can run a move whose pools are on the device. They have limits on the lanes
// that rotate together, or in COMPARE all lanes of a head (kMostKeyLanes), and on the bytes of a
// token's row. Lanes that are apart in two ways must be aligned to themselves.
bool IsSupported(const MoveJob& job);

// Adds the items for a slice, whose rows must be of one group. Layers that share specs and layouts
// share an item. The positions of slots are written last. Adds none if no byte changes. `results`:
// on the device, where those of the slice go, aligned to 8.
void AddKeyItems(const MoveJob& job, Slice slice, std::byte* results, LaunchList& list,
                 ItemMaker maker);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_KEY_ITEMS_H_
