// SPDX-License-Identifier: Apache-2.0
// The rotary op: what a kernel is given and must compute. Rotates pairs of lanes of every
// (token, head) by the token's phases.
//
//   phase[t, h, j] = sum over the layers of the pair of PhaseOf(position[t, axis], frequency), plus
//                    its offset, minus the same of `from` when given, negated when inverse
//   y1 = x1 cos - x2 sin        y2 = x1 sin + x2 cos,   sin and cos times A
//
// Source   Su et al., RoFormer, arXiv:2104.09864, section 3.2.2; pairings: docs/conventions.md;
//          xPos: Sun et al., arXiv:2212.10554, and kernels/math/xpos.h.
// Shape    positions [tokens, axes]; tensors [tokens, heads, head_dim] by strides, lanes
//          contiguous. With frequency_heads > 1 every tensor has that many heads and head h uses
//          the pairs from h * head_pairs on; otherwise all heads use the first `pairs`.
//          Pair j is lanes begin+j and begin+j+pairs (HALF_SPLIT) or begin+2j and begin+2j+1
//          (INTERLEAVED), or as HALF_SPLIT inside each of `blocks` (BLOCK_HALF_SPLIT).
// Unit     phases are in turns * 2^64; strides are in bytes.
// Order    A = amplitude, with xPos rn64(amplitude * 2^exponent), where the exponent of `from` is
//          subtracted, and negated when inverse; s' = rn(A*s), c' = rn(A*c) unless A == 1;
//          y1 = fma(-x2, s', rn(x1*c')), y2 = fma(x2, c', rn(x1*s')).
//          f32 arithmetic for FLOAT32, FLOAT16, BFLOAT16 (A rounded to f32 first); f64 for FLOAT64;
//          one rounding to the dtype. A FLOAT8 y needs a FLOAT16 or BFLOAT16 x and is
//          Float8FromFloat(rn32(v * inv_scale)), where v is the f32 result or the copied lane.
//          Tensors with rows: Decode, the f32 rotation, Encode (kernels/ops/key_rows.h).
// Error    docs/numerics.md; relative to hypot(x1, x2).
// Special  NaN and infinity stay in their pair. Lanes outside the pairs, and all lanes of a tensor
//          that does not rotate, are copied bit for bit (except to FLOAT8); in place they are not
//          touched. tokens == 0 or heads == 0 touches nothing; a token with a negative y_offset
//          is not written.
// Alias    y == x with equal strides and types is allowed; no other overlap, and no two tokens at
//          one place. Any alignment.
#ifndef PHASOR_KERNELS_OPS_ROTARY_H_
#define PHASOR_KERNELS_OPS_ROTARY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/math/phase.h"
#include "kernels/math/xpos.h"
#include "kernels/ops/encode.h"
#include "kernels/ops/key_rows.h"
#include "kernels/ops/pairing.h"
#include "kernels/ops/phase_table.h"

namespace phasor {

// The arguments of the rotary op. Borrows everything.
struct RotaryArgs {
  // Phases of a tile of tokens.
  const PhaseTable* table = nullptr;
  const Position* positions = nullptr;       // [tokens, axes]
  const PhaseTable* from_table = nullptr;    // delta only, else nullptr
  const Position* from_positions = nullptr;  // [tokens, from_axes]
  int axes = 1;
  int from_axes = 1;
  const Xpos* xpos = nullptr;  // not nullptr: the amplitude depends on the position on axis 0
  const Xpos* from_xpos = nullptr;
  bool inverse = false;
  double amplitude = 1.0;  // of the whole call: a reciprocal when inverse, a quotient in a delta
  int64_t tokens = 0;      // <= RotaryTile(frequency_heads * pairs)

  // Lanes of a head.
  int64_t head_dim = 0;
  int64_t rotary_begin = 0;
  int64_t pairs = 0;            // of a head
  int64_t frequency_heads = 1;  // > 1: each head has its own frequencies
  int64_t head_pairs = 0;       // pairs from one such head to the next, even
  Pairing pairing_in = Pairing::kHalfSplit;
  Pairing pairing_out = Pairing::kHalfSplit;
  PairBlocks blocks{};  // for BLOCK_HALF_SPLIT, in either place

  // Tensors of the tile. x and y point at its first token.
  struct Tensor {
    Dtype dtype = Dtype::kFloat32;
    int64_t heads = 0;
    const std::byte* x = nullptr;
    int64_t x_token_bytes = 0;
    int64_t x_head_bytes = 0;
    std::byte* y = nullptr;
    int64_t y_token_bytes = 0;
    int64_t y_head_bytes = 0;
    Float8 float8 = Float8::kNone;  // of y; kNone: dtype
    float inv_scale = 1;            // FLOAT8 only
    bool rotates = true;
    const int64_t* y_offsets =
        nullptr;  // [tokens]: bytes from y to a token, instead of y_token_bytes
    const int64_t* x_offsets = nullptr;  // the same of x; may be set only with y_offsets
    // Not nullptr: stored keys, which are decoded, rotated in f32 and encoded. dtype is FLOAT32.
    const KeyRows* rows = nullptr;
  };
  const Tensor* tensors = nullptr;
  int64_t tensor_count = 0;
  bool stream = false;         // hint: nobody reads the outputs soon
  bool fetch = false;          // hint: no cache has the tokens
  int64_t pages_in_turns = 1;  // hint, with `fetch`: heads of as many pages of a token take turns
  // Working memory: RotaryScratchBytes() bytes, aligned to 64 bytes.
  std::byte* scratch = nullptr;
  float* lanes = nullptr;  // for tensors with rows: KeyLanesBytes(head_dim), aligned to 64 bytes
};

// Three rows: lanes, rotated lanes, and a stored row whose lanes are side by side.
inline int64_t KeyLanesBytes(int64_t head_dim) { return 3 * 4 * (head_dim + 2 * kLaneSlack); }

// Tokens whose sines and cosines are kept at once: 8 KiB of f32 tables for `pairs` of all heads.
inline int64_t RotaryTile(int64_t pairs) {
  const int64_t tile = 1024 / (pairs < 1 ? 1 : pairs);
  return tile < 1 ? 1 : (tile > 64 ? 64 : tile);
}

// Entries of one head of a token in a table, with the slack for vector loads.
inline int64_t RotaryTableStride(int64_t pairs) {
  return (pairs + kLaneSlack - 1) / kLaneSlack * kLaneSlack;
}

// Bytes for: two rows of phases; then, per token and frequency head of the tile, f32 tables in
// natural, split and interleaved order (2 + 2 + 4 floats a pair) and f64 tables (2 doubles a pair);
// then the lanes of one head twice; then amplitudes in f64 and f32.
inline int64_t RotaryScratchBytes(const PhaseTable& table, int64_t pairs, int64_t heads) {
  const int64_t entries = table.entries() + kLaneSlack;
  const int64_t stride = RotaryTableStride(pairs);
  return 8 *
         (2 * entries + 6 * RotaryTile(heads * pairs) * heads * stride + 4 * stride + 2 * entries);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_ROTARY_H_
