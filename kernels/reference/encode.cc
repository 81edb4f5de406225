// SPDX-License-Identifier: Apache-2.0
// Encode, in scalar code. Contract: kernels/ops/encode.h.
#include <algorithm>

#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

namespace phasor::reference {
namespace {

template <typename T>
void Put(const EncodeBlock& block, int64_t begin, int64_t i, T value, T* row) {
  if (begin < 0) return;
  T& column = row[begin + i * block.stride];
  column = block.accumulate ? column + value : value;
}

// Sine and cosine of `pair` at p, as they go into a row.
template <typename Element>
SinCos<typename Element::Math> Components(const EncodeArgs& args, int64_t pair, const Position* p) {
  using T = typename Element::Math;
  double amplitude = args.amplitude;
  if (args.xpos != nullptr) amplitude *= Exp2(PairExponent(args.xpos, pair, p));
  SinCos<T> v = ScaledTrig<Element>(PairPhase(*args.table, pair, p), amplitude);
  const T bias = static_cast<T>(args.layout->cos_bias);
  if (bias != 0) v.cos += bias;
  return v;
}

template <typename Element>
void EncodeRow(const EncodeArgs& args, int64_t t) {
  using T = typename Element::Math;
  const RowLayout& layout = *args.layout;
  T* row = reinterpret_cast<T*>(args.scratch);  // [width]
  std::fill(row, row + layout.content_begin, T{0});
  std::fill(row + layout.content_end, row + layout.width, T{0});
  for (const EncodeBlock& block : layout.blocks) {
    for (int64_t i = 0; i < block.pairs; ++i) {
      const SinCos<T> v =
          Components<Element>(args, block.first_pair + i, args.positions + t * args.axes);
      Put(block, block.sin_begin, i, block.negate_sin ? -v.sin : v.sin, row);
      Put(block, block.cos_begin, i, v.cos, row);
    }
  }
  const T scale = static_cast<T>(args.embedding_scale);
  for (int64_t c = 0; c < layout.width; ++c) {
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
