// SPDX-License-Identifier: Apache-2.0
// Which encodings have wide rows (kernels/cuda/encode.h), and how blocks cover them.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_WIDE_ROWS_H_
#define PHASOR_KERNELS_CUDA_WIDE_ROWS_H_

#include <cstdint>

#include "kernels/cuda/arena.h"
#include "kernels/cuda/encode.h"
#include "kernels/cuda/items.h"

namespace phasor::cuda {

// `used` is false if columns are zero or added to, or if kVectorBytes cannot be stored at once.
WideRows WideRowsOf(const EncodeJob& job, const RowBuffers& buffers);

// The fractions of a plan's frequencies, in the order in which threads load them.
InArena<uint64_t> PutFractions(const Plan& plan, const WideRows& wide, int64_t element_bytes,
                               Arena& arena);

// Threads of a block compute one unit each, side by side, of rows below one another. All blocks run
// at once, unless threads had too many rows: then in as few waves as possible, all equally full.
WideGrid MakeWideGrid(int64_t pairs, int64_t rows, int64_t element_bytes, int processors);

inline int64_t BlocksOf(const WideGrid& grid) {
  return (grid.rows + grid.block_rows - 1) / grid.block_rows * grid.parts.value;
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_WIDE_ROWS_H_
