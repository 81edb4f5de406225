// SPDX-License-Identifier: Apache-2.0
// Contract of the rotary op: rotates pairs of lanes of every (token, head) by the token's phases.
//
//   phase[t, j] = PhaseOf(position[t, axis j], frequency j) + offset j, negated when inverse,
//                 less the same of `from` when given
//   y1 = x1 cos - x2 sin        y2 = x1 sin + x2 cos,   sin and cos times A
//
// Source   Su et al., RoFormer, arXiv:2104.09864, section 3.2.2; pairings: docs/conventions.md.
// Shape    positions [tokens, axes]; tensors [tokens, heads, head_dim] by strides, lanes
// contiguous.
//          Pair j: HALF_SPLIT lanes begin+j and begin+j+pairs; INTERLEAVED begin+2j and begin+2j+1.
// Unit     phases in turns * 2^64; strides in bytes.
// Order    s' = rn(A*s), c' = rn(A*c) unless A == 1;
//          y1 = fma(-x2, s', rn(x1*c')), y2 = fma(x2, c', rn(x1*s')).
//          f32 arithmetic for FLOAT32, FLOAT16, BFLOAT16; f64 for FLOAT64; one rounding to the
//          dtype.
// Error    docs/numerics.md; relative to hypot(x1, x2).
// Special  NaN and infinity stay in their pair. Lanes outside the pairs are copied bit for bit, and
//          not touched in place. tokens == 0 or heads == 0 touches nothing.
// Alias    y == x with equal strides allowed; no other overlap. Alignment: none needed.
#ifndef PHASOR_KERNELS_OPS_ROTARY_H_
#define PHASOR_KERNELS_OPS_ROTARY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/ops/encode.h"
#include "kernels/phase.h"
#include "kernels/plan.h"
#include "kernels/spec.h"

namespace phasor {

struct RotaryArgs {
  // Phases of a token tile.
  const PhaseTable* table = nullptr;
  const Position* positions = nullptr;       // [tokens, axes]
  const PhaseTable* from_table = nullptr;    // delta only, else nullptr
  const Position* from_positions = nullptr;  // [tokens, from_axes]
  int axes = 1;
  int from_axes = 1;
  bool inverse = false;
  double amplitude = 1.0;
  int64_t tokens = 0;  // <= RotaryTile(pairs)

  // Geometry of a head.
  int64_t head_dim = 0;
  int64_t rotary_begin = 0;
  int64_t pairs = 0;
  Pairing pairing_in = Pairing::kHalfSplit;
  Pairing pairing_out = Pairing::kHalfSplit;

  // Tensors of the tile; x and y stand at its first token.
  struct Tensor {
    Dtype dtype = Dtype::kFloat32;
    int64_t heads = 0;
    const std::byte* x = nullptr;
    int64_t x_token_bytes = 0;
    int64_t x_head_bytes = 0;
    std::byte* y = nullptr;
    int64_t y_token_bytes = 0;
    int64_t y_head_bytes = 0;
  };
  const Tensor* tensors = nullptr;
  int64_t tensor_count = 0;
  bool stream = false;  // hint: the outputs will not be read soon
  // Working memory, 64-byte aligned, RotaryScratchBytes() of it.
  std::byte* scratch = nullptr;
};

// Tokens whose sines and cosines are kept at once: 8 KiB of f32 tables.
inline int64_t RotaryTile(int64_t pairs) {
  const int64_t tile = 1024 / (pairs < 1 ? 1 : pairs);
  return tile < 1 ? 1 : (tile > 64 ? 64 : tile);
}

// Entries of one token in a table, vectors' slack included.
inline int64_t RotaryTableStride(int64_t pairs) {
  return (pairs + kLaneSlack - 1) / kLaneSlack * kLaneSlack;
}

// Two rows of phases, then per token of the tile: natural, split and interleaved f32 tables
// (2 + 2 + 4 floats a pair) and f64 tables (2 doubles a pair), then lanes of one head twice.
inline int64_t RotaryScratchBytes(const PhaseTable& table, int64_t pairs) {
  const int64_t entries = 2 * table.half + kLaneSlack;
  const int64_t stride = RotaryTableStride(pairs);
  return 8 * (2 * entries + 6 * RotaryTile(pairs) * stride + 4 * stride);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_ROTARY_H_
