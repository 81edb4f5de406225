// SPDX-License-Identifier: Apache-2.0
// Makes the items of moves of keys (kernels/cuda/keys.h). A row of a move is a token of all its
// layers; the rows are the tokens of all groups, group after group.
#ifndef PHASOR_KERNELS_CUDA_KEY_ITEMS_H_
#define PHASOR_KERNELS_CUDA_KEY_ITEMS_H_

#include <cstdint>

#include "kernels/backend/batch.h"
#include "kernels/cuda/items.h"
#include "kernels/cuda/launch_list.h"

namespace phasor::cuda {

// Whether the kernels can run a move whose pools are on the device. They do not compare, and have
// limits on the lanes that rotate together (kMostKeyLanes) and on the bytes of a token's row.
// Lanes that are apart in two ways must be aligned to themselves.
bool IsSupported(const MoveJob& job);

// The rows of a move.
int64_t RowsOf(const MoveJob& job);

// What it reads and writes.
JobBytes BytesOf(const MoveJob& job);

// How many rows from `first` on are of one group.
int64_t RowsOfGroup(const MoveJob& job, int64_t first);

// Adds the items for a slice, whose rows must be of one group. Layers that share specs and layouts
// share an item. Adds none if no byte changes.
void AddKeyItems(const MoveJob& job, Slice slice, LaunchList& list, ItemMaker maker);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_KEY_ITEMS_H_
