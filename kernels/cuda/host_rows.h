// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor in the host's memory, and their dense copies in staging memory.
#ifndef PHASOR_KERNELS_CUDA_HOST_ROWS_H_
#define PHASOR_KERNELS_CUDA_HOST_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/items.h"

namespace phasor::cuda {

// `heads` runs of `bytes` a row; row r is row r % tokens of batch entry r / tokens. Any alignment.
struct HostRows {
  std::byte* base = nullptr;
  int64_t tokens = 1;  // rows of a batch entry, > 0
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t heads = 1;
  int64_t head_stride = 0;
  int64_t bytes = 0;  // of a head
  // [rows] bytes from base, instead of batches and strides; negative: the row is not written.
  const int64_t* offsets = nullptr;

  int64_t row_bytes() const { return heads * bytes; }
};

// Copies rows to dense memory, [count, heads, bytes].
void Gather(const HostRows& rows, Slice slice, std::byte* dense);
// Copies them back. Only here and in the last may there be offsets.
void Scatter(const std::byte* dense, Slice slice, const HostRows& rows);
// Copies rows of one tensor to another of the same heads and bytes; not overlapping.
void CopyRows(const HostRows& from, Slice slice, const HostRows& to);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_HOST_ROWS_H_
