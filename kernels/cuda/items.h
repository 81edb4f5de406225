// SPDX-License-Identifier: Apache-2.0
// Turns jobs into what kernels read: plain items that point to tensors on the device. The numbers
// of plans, rules and positions are put into an arena.
//
// An item computes a slice of a job's rows. The caller gives the tensors that it reads and writes.
// The caller must place them so that they are aligned to their elements.
#ifndef PHASOR_KERNELS_CUDA_ITEMS_H_
#define PHASOR_KERNELS_CUDA_ITEMS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend/batch.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/bias.h"
#include "kernels/cuda/encode.h"
#include "kernels/cuda/kernel_id.h"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/row_program.h"

namespace phasor::cuda {

// Whether kernels can compute the job. They cannot compute an upstream's arithmetic (PARITY);
// DeBERTa's buckets beyond its thresholds, which take a logarithm; rows of 2^24 columns, pairs,
// heads or keys; and heads of more than 512 lanes that change their pairing in place. For moves of
// keys see kernels/cuda/key_items.h.
bool Supports(const Job& job);

// The rows of a job: positions of an encoding or lookup, tokens of all batch entries, queries, or
// tokens of a move. 0 if there is nothing to write.
int64_t RowsOf(const Job& job);

// The bytes of the tensors that a job reads besides positions, and of those that it writes. Counts
// whole rows, also where lanes are skipped or not rotated.
struct JobBytes {
  int64_t read = 0;
  int64_t written = 0;
};
JobBytes BytesOf(const Job& job);

// Rows [first, first + count), count > 0. If the batch entries of a rotary job share positions, a
// slice is whole entries or a part of one. A slice of a move is a part of one group.
struct Slice {
  int64_t first = 0;
  int64_t count = 0;
};

// The longest slice of the job from `first` on with at most `most` rows, and with less than 2^31;
// `most` must be > 0.
Slice SliceFrom(const Job& job, int64_t first, int64_t most);

// Where the rows of a slice are on the device.
struct RowBuffers {
  std::byte* out = nullptr;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_row_bytes = 0;
  int64_t out_head_bytes = 0;  // biases only
  int64_t add_to_head_bytes = 0;
};

// Which lanes of a head the views show.
struct HeadLanes {
  int64_t rotary_begin = 0;
  int64_t apart = 0;  // lanes that do not rotate
};

// What items are made for: an arena for what they refer to, and the multiprocessors that are
// theirs.
struct ItemMaker {
  Arena& arena;
  int processors;
};

// The share of each of `jobs` that run together in a device's multiprocessors, so that small jobs
// have no more blocks than they need.
inline int ShareOf(int processors, size_t jobs) {
  return std::max(processors / static_cast<int>(std::max<size_t>(jobs, 1)), 1);
}

// How far the pairs of a plan turn. Its tables are put into the arena.
ItemTurns MakeTurns(const Plan& plan, Arena& arena);

KernelId EncodeKernel(const EncodeJob& job);
EncodeItem MakeEncodeItem(const EncodeJob& job, const RowProgram& program, Slice slice,
                          const RowBuffers& buffers, ItemMaker maker);

KernelId LookupKernel(const LookupJob& job);
LookupItem MakeLookupItem(const LookupJob& job, Slice slice, const RowBuffers& buffers,
                          ItemMaker maker);

KernelId BiasKernel(const BiasJob& job);
BiasItem MakeBiasItem(const BiasJob& job, Slice slice, const RowBuffers& buffers, ItemMaker maker);

// At most kMostViews views. All have dtype `dtype`, and all or none of them write FLOAT8. `tokens`:
// the rows of a batch entry, as the strides of the views count them. MakeRotaryItem sets what of a
// view depends on its item.
KernelId RotaryKernel(const RotaryJob& job, Slice slice, Dtype dtype, const HeadLanes& lanes,
                      absl::Span<const RotaryView> views, int64_t tokens);
RotaryItem MakeRotaryItem(const RotaryJob& job, Slice slice, const KernelId& kernel,
                          const HeadLanes& lanes, absl::Span<const RotaryView> views,
                          int64_t tokens, ItemMaker maker);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ITEMS_H_
