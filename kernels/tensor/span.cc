// SPDX-License-Identifier: Apache-2.0
// Compares tensors by the rows that they have in common.
#include "kernels/tensor/span.h"

#include <algorithm>

namespace phasor {
namespace {

// Whether the two tensors alternate in rows of one length: all elements of `a` lie in one part of
// their row, and all elements of `b` in another.
bool Interleave(const ByteSpan& a, const ByteSpan& b) {
  // Bytes from the first to the last element of a row, for rows that are `row` bytes apart.
  const auto width = [](const ByteSpan& span, int64_t row) {
    int64_t bytes = span.element_bytes;
    for (const auto& [extent, step] : span.steps) {
      if (step % row != 0) bytes += (extent - 1) * step;
    }
    return bytes;
  };
  for (const auto& [extent, row] : a.steps) {
    if (row < 1 || b.steps.empty()) continue;
    const int64_t a_width = width(a, row);
    const int64_t b_width = width(b, row);
    // Bytes from `a` to `b` within a row.
    const int64_t between = ((b.begin - a.begin) % row + row) % row;
    if (between >= a_width && b_width <= row - between) return true;
  }
  return false;
}

}  // namespace

ByteSpan SpanOf(Dtype dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                int64_t begin, int64_t bytes) {
  ByteSpan span{begin, begin + bytes, SizeOf(dtype)};
  for (size_t i = 0; i < std::min(strides.size(), shape.size()); ++i) {
    if (shape[i] <= 1) continue;  // its stride is not used and may be any number
    span.steps.emplace_back(shape[i], strides[i] * span.element_bytes);
  }
  return span;
}

bool Apart(const ByteSpan& a, const ByteSpan& b) {
  return a.end <= b.begin || b.end <= a.begin || Interleave(a, b);
}

}  // namespace phasor
