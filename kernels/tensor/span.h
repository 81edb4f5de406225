// SPDX-License-Identifier: Apache-2.0
// The bytes that tensors span, and whether two tensors share some. Threads: pure functions.
#ifndef PHASOR_KERNELS_TENSOR_SPAN_H_
#define PHASOR_KERNELS_TENSOR_SPAN_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/dtype.h"

namespace phasor {

// The bytes from the first to the last element of a tensor.
struct ByteSpan {
  int64_t begin = 0;  // an address, or an offset in some memory
  int64_t end = 0;
  int64_t element_bytes = 1;
  // Extent and byte stride of each dimension larger than 1; empty: dense.
  std::vector<std::pair<int64_t, int64_t>> steps = {};
};

// `strides` are in elements; empty: dense.
ByteSpan SpanOf(Dtype dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                int64_t begin, int64_t bytes);

// Whether no byte belongs to both of two spans of the same memory: one ends before the other
// begins, or they alternate in rows of one length, as queries and keys of a fused buffer do. False
// also for patterns that are more complicated.
bool Apart(const ByteSpan& a, const ByteSpan& b);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_SPAN_H_
