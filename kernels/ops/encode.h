// SPDX-License-Identifier: Apache-2.0
// The encode op: what a kernel is given and must compute. Writes rows of sines and cosines, and can
// add them to given rows.
//
//   phase[t, j] = sum over pair j's layers of PhaseOf(position[t, axis], frequency), plus offset j
//   v[t, sin column of j] = A sin(2 pi phase), negated where the block says so
//   v[t, cos column of j] = A cos(2 pi phase) + cos_bias
//   out[t, c] = embedding_scale * add_to[t, c] + v[t, c]
//
// Source   kernels/math/sincos.h for sin and cos; kernels/math/xpos.h for amplitudes that depend on
//          position and pair; docs/conventions.md for what layouts express.
// Shape    positions [rows, axes]; out, add_to [rows, width], lanes contiguous. Blocks lie inside
//          [content_begin, content_end). Each column there is set by one block before other blocks
//          accumulate into it.
// Unit     phases are in turns * 2^64; row strides are in bytes.
// Range    any position; width, pairs <= 2^40.
// Order    A = amplitude, with xPos rn64(amplitude * 2^exponent); s' = rn(A*s), c' = rn(A*c) unless
//          A == 1; then c' = rn(c' + cos_bias) unless it is 0, and s' changes sign; a column that
//          accumulates adds blocks in order; then fma(embedding_scale, add_to, v). f32 arithmetic
//          for FLOAT32, FLOAT16 and BFLOAT16 (A, cos_bias and embedding_scale rounded to f32
//          first), f64 for FLOAT64; one rounding to the dtype.
// Error    docs/numerics.md.
// Special  NaN or infinity in add_to stays in its column. rows == 0 touches nothing.
// Alias    add_to == out is allowed; no other overlap. Any alignment.
#ifndef PHASOR_KERNELS_OPS_ENCODE_H_
#define PHASOR_KERNELS_OPS_ENCODE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/math/phase.h"
#include "kernels/math/xpos.h"
#include "kernels/ops/phase_table.h"
#include "kernels/ops/row_layout.h"

namespace phasor {

// The arguments of the encode op. Borrows everything.
struct EncodeArgs {
  const PhaseTable* table = nullptr;
  const Position* positions = nullptr;  // [rows, axes]
  int axes = 1;
  int64_t rows = 0;
  const RowLayout* layout = nullptr;
  double amplitude = 1.0;
  const Xpos* xpos = nullptr;  // not nullptr: the amplitude depends on the position on axis 0
  Dtype dtype = Dtype::kFloat32;
  std::byte* out = nullptr;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_row_bytes = 0;
  double embedding_scale = 1.0;
  bool stream = false;              // hint: nobody reads the output soon
  bool rounds_to_bfloat16 = false;  // the CPU has an instruction for that
  // Working memory: EncodeScratchBytes() bytes, aligned to 64 bytes.
  std::byte* scratch = nullptr;
};

// Elements after the end of a scratch array that vector loads may read.
inline constexpr int64_t kLaneSlack = 64;

// Rows whose phases are kept at once. They take 16 KiB.
inline int64_t EncodeTile(const PhaseTable& table) {
  const int64_t tile = 1024 / (table.half < 1 ? 1 : table.half);
  return tile < 1 ? 1 : (tile > 64 ? 64 : tile);
}

// Rows in scratch at once. A few at least: if phases advance by a constant step, only those of the
// first row are computed.
inline int64_t EncodeRowsAtOnce(const PhaseTable& table) {
  const int64_t tile = EncodeTile(table);
  return tile < 8 ? 8 : tile;
}

// 8-byte words for the rows in scratch, of f32 or one row of f64, in whole cache lines.
inline int64_t EncodeRowsWords(const PhaseTable& table, int64_t width) {
  return (EncodeRowsAtOnce(table) * width / 2 + kLaneSlack + 15) / 8 * 8;
}

// Bytes for: phases of a tile, phases of a step, rows, sines and cosines in f64, and the amplitudes
// of a row in f64 and f32.
inline int64_t EncodeScratchBytes(const PhaseTable& table, int64_t width) {
  const int64_t entries = table.entries() + kLaneSlack;
  const int64_t tile = EncodeTile(table);
  return 8 * (tile * table.entries() + kLaneSlack + entries + EncodeRowsWords(table, width) +
              2 * entries + 2 * entries);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_ENCODE_H_
