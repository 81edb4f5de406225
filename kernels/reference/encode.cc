// SPDX-License-Identifier: Apache-2.0
// Encode, in scalar code. Contract: kernels/ops/encode.h.
#include <cstring>

#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

namespace phasor::reference {
namespace {

template <typename T>
void Put(const EncodeBlock& block, int64_t column, T value, T* row) {
  row[column] = block.accumulate ? row[column] + value : value;
}

template <typename Element>
void EncodeRow(const EncodeArgs& args, int64_t t) {
  using T = typename Element::Math;
  T* row = reinterpret_cast<T*>(args.scratch);  // [dim]
  for (int64_t c = args.zero_begin; c < args.dim; ++c) row[c] = 0;
  for (int64_t b = 0; b < args.block_count; ++b) {
    const EncodeBlock& block = args.blocks[b];
    for (int64_t i = 0; i < block.pairs; ++i) {
      const uint64_t phase =
          PairPhase(*args.table, block.first_pair + i, args.positions + t * args.axes);
      const SinCos<T> v = ScaledTrig<Element>(phase, args.amplitude);
      Put(block, block.sin_begin + i * block.stride, v.sin, row);
      if (block.cos_begin >= 0) Put(block, block.cos_begin + i * block.stride, v.cos, row);
    }
  }
  const T scale = static_cast<T>(args.embedding_scale);
  for (int64_t c = 0; c < args.dim; ++c) {
    T v = row[c];
    if (args.add_to != nullptr) {
      v = std::fma(scale,
                   Element::Load(args.add_to + t * args.add_to_row_bytes + c * Element::kBytes), v);
    }
    Element::Store(v, args.out + t * args.out_row_bytes + c * Element::kBytes);
  }
}

}  // namespace

void Encode(const EncodeArgs& args) {
  VisitElement(args.dtype, [&]<typename Element>(Element) {
    for (int64_t t = 0; t < args.rows; ++t) EncodeRow<Element>(args, t);
  });
}

}  // namespace phasor::reference
