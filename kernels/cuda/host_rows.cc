// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/host_rows.h"

#include <algorithm>
#include <cstring>

namespace phasor::cuda {
namespace {

// Where row r begins; nullptr: nowhere.
std::byte* RowOf(const HostRows& rows, int64_t r) {
  if (rows.offsets != nullptr) return rows.offsets[r] < 0 ? nullptr : rows.base + rows.offsets[r];
  return rows.base + r / rows.tokens * rows.batch_stride + r % rows.tokens * rows.row_stride;
}

// Calls copy(memory, bytes) for the runs of a slice in the order of dense memory, neighbours
// joined; memory is nullptr for rows that are nowhere.
template <typename Copy>
void ForEachRun(const HostRows& rows, Slice slice, Copy copy) {
  const bool joined_heads = rows.heads == 1 || rows.head_stride == rows.bytes;
  const bool joined_rows =
      joined_heads && rows.row_stride == rows.row_bytes() && rows.offsets == nullptr;
  for (int64_t r = slice.first; r < slice.first + slice.count;) {
    std::byte* const row = RowOf(rows, r);
    const int64_t together =
        joined_rows ? std::min(rows.tokens - r % rows.tokens, slice.first + slice.count - r) : 1;
    if (joined_heads || row == nullptr) {
      copy(row, together * rows.row_bytes());
    } else {
      for (int64_t h = 0; h < rows.heads; ++h) copy(row + h * rows.head_stride, rows.bytes);
    }
    r += together;
  }
}

void Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

void Gather(const HostRows& rows, Slice slice, std::byte* dense) {
  ForEachRun(rows, slice, [&](const std::byte* run, int64_t bytes) {
    Copy(dense, run, bytes);
    dense += bytes;
  });
}

void Scatter(const std::byte* dense, Slice slice, const HostRows& rows) {
  ForEachRun(rows, slice, [&](std::byte* run, int64_t bytes) {
    if (run != nullptr) Copy(run, dense, bytes);
    dense += bytes;
  });
}

void CopyRows(const HostRows& from, Slice slice, const HostRows& to) {
  for (int64_t r = slice.first; r < slice.first + slice.count; ++r) {
    std::byte* const row = RowOf(to, r);
    if (row == nullptr) continue;
    for (int64_t h = 0; h < from.heads; ++h) {
      Copy(row + h * to.head_stride, RowOf(from, r) + h * from.head_stride, from.bytes);
    }
  }
}

}  // namespace phasor::cuda
