// SPDX-License-Identifier: Apache-2.0
// The key_rows ops: read the stored rows of one token as f32 lanes, and write lanes as rows. The
// rotary op does both around a rotation in f32 (KeyRows below).
//
// Source   docs/move-keys.md; block codes: ggml-quants.c (kernels/math/key_blocks.h).
// Shape    rows [heads] by form.head_bytes; lanes [heads, head_dim], dense. `row` is lane 0 of head
//          0, `scale` the scale of head 0 (only if form.scaled_rows).
// Range    the window must be one of WindowOf; only its lanes are read and written.
// Order    Decode: value of the code; times the row's scale if rows have scales; then, with
//          hadamard n, the transform of every n lanes (kernels/math/hadamard.h).
//          Encode: the same transform; then the code. FLOAT32, FLOAT16,
//          BFLOAT16: rounded once. FLOAT8 with one scale: saturated and rounded once; the scale
//          plays no part, because a rotation commutes with it. With row scales: s = amax / limit
//          of the window (448, 57344 or 127), at least 1e-6; FLOAT8 saturates and rounds x / s;
//          INT8 rounds x / s, halves away from zero.
// Special  NaN: FLOAT8 0x7F; INT8 and Q8_0 0; other blocks the smallest code.
// Alias    none. Any alignment.
#ifndef PHASOR_KERNELS_OPS_KEY_ROWS_H_
#define PHASOR_KERNELS_OPS_KEY_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/ops/key_form.h"

namespace phasor {

// The largest code of a type with a scale for each row, and the smallest scale.
constexpr float LargestCode(KeyCode code) {
  if (code == KeyCode::kFloat8E4M3) return 448.0f;
  return code == KeyCode::kFloat8E5M2 ? 57344.0f : 127.0f;
}
inline constexpr float kLeastRowScale = 1e-6f;

struct DecodeKeysArgs {
  const KeyForm* form = nullptr;
  KeyWindow window;
  const std::byte* row = nullptr;
  const std::byte* scale = nullptr;
  float* lanes = nullptr;
};

struct EncodeKeysArgs {
  const KeyForm* form = nullptr;
  KeyWindow window;
  float* lanes = nullptr;  // changed if the form has a Hadamard transform
  std::byte* row = nullptr;
  std::byte* scale = nullptr;
};

// What a tensor of the rotary op holds, if it holds stored keys.
struct KeyRows {
  const KeyForm* form = nullptr;  // of x
  const KeyForm* to_form = nullptr;
  KeyWindow window;  // only its lanes are read and written
  // [tokens]: bytes from x, or y, to the scale of head 0. Only if rows have scales.
  const int64_t* x_scales = nullptr;
  const int64_t* y_scales = nullptr;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_KEY_ROWS_H_
