// SPDX-License-Identifier: Apache-2.0
// The rows of a tensor in a job's memory, and copies between them and dense staging memory.
#ifndef PHASOR_KERNELS_CUDA_HOST_ROWS_H_
#define PHASOR_KERNELS_CUDA_HOST_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/items.h"

namespace phasor::cuda {

// Rows of `heads` runs of `bytes` each. Row r is row r % tokens of batch entry r / tokens. Any
// alignment.
struct HostRows {
  std::byte* base = nullptr;
  int64_t tokens = 1;  // rows of a batch entry, > 0
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t heads = 1;
  int64_t head_stride = 0;
  int64_t bytes = 0;       // of a head
  bool on_device = false;  // kernels use the rows in place, and nothing here may touch them
  // [rows]: bytes from base, instead of batches and strides; negative: the row is skipped. Only for
  // rows that are written.
  const int64_t* offsets = nullptr;

  int64_t row_bytes() const { return heads * bytes; }
};

// The first byte of row r; nullptr if the row is skipped.
inline std::byte* RowOf(const HostRows& rows, int64_t r) {
  if (rows.offsets != nullptr) return rows.offsets[r] < 0 ? nullptr : rows.base + rows.offsets[r];
  return rows.base + r / rows.tokens * rows.batch_stride + r % rows.tokens * rows.row_stride;
}

// Calls run(memory, bytes > 0) for each contiguous run of memory of a slice of rows, in the order
// of dense memory and with neighbours joined. `memory` is nullptr for rows that are skipped.
template <typename Run>
void ForEachRun(const HostRows& rows, Slice slice, Run run) {
  if (rows.row_bytes() == 0) return;
  const bool joined_heads = rows.heads == 1 || rows.head_stride == rows.bytes;
  const bool joined_rows =
      joined_heads && rows.row_stride == rows.row_bytes() && rows.offsets == nullptr;
  for (int64_t r = slice.first; r < slice.first + slice.count;) {
    std::byte* const row = RowOf(rows, r);
    const int64_t together =
        joined_rows ? std::min(rows.tokens - r % rows.tokens, slice.first + slice.count - r) : 1;
    if (joined_heads || row == nullptr) {
      run(row, together * rows.row_bytes());
    } else {
      for (int64_t h = 0; h < rows.heads; ++h) run(row + h * rows.head_stride, rows.bytes);
    }
    r += together;
  }
}

// Copies rows to dense memory, [count, heads, bytes].
void Gather(const HostRows& rows, Slice slice, std::byte* dense);
// Copies dense memory back to the rows, except skipped ones.
void Scatter(const std::byte* dense, Slice slice, const HostRows& rows);
// Copies rows of one tensor to another with the same heads and bytes, which may skip rows. The
// memory must not overlap.
void CopyRows(const HostRows& from, Slice slice, const HostRows& to);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_HOST_ROWS_H_
