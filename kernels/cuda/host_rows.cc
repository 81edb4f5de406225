// SPDX-License-Identifier: Apache-2.0
// Copies rows between a job's memory and dense memory.
#include "kernels/cuda/host_rows.h"

#include <cstring>

namespace phasor::cuda {
namespace {

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
