// SPDX-License-Identifier: Apache-2.0
// The bias op: what a kernel is given and must compute. Adds attention biases, or writes the table
// rows that they come from.
//
//   index[q, k]  = row of the rule's table for query q and key k
//   v[h, q, k]   = table[index[q, k], h]            T5, CLIPPED, SWIN
//                = -(slope[h] * |query - key|)      ALIBI
//                = slope[h] * key                   ALIBI_KEY
//   out[h, q, k] = add_to[h, q, k] + v[h, q, k]
//   out[0, q, k] = index[q, k]                      when the dtype is INT32 or INT64
//
// Source   docs/tables-and-biases.md names the upstream code of every family.
// Shape    queries [rows, axes], keys [columns, axes]; out, add_to [heads, rows, columns], columns
//          contiguous; table [table_rows, heads], dense.
// Unit     positions are whole numbers; strides are in bytes.
// Range    |position| < 2^62; SWIN: offsets within the window. columns <= kBiasTile.
// Order    f32 arithmetic for FLOAT32, FLOAT16 and BFLOAT16, f64 for FLOAT64. Each table element,
//          slope and distance is first rounded to that type; then one product, one sum, and one
//          rounding to the dtype.
// Error    exact for tables of the arithmetic type or narrower; ALIBI 1 ulp of v; + 0.5 ulp of the
//          sum.
// Special  NaN and infinity stay in their element. Zero rows or columns: nothing is touched.
// Alias    add_to == out with equal strides is allowed; no other overlap. Any alignment.
#ifndef PHASOR_KERNELS_OPS_BIAS_H_
#define PHASOR_KERNELS_OPS_BIAS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/math/phase.h"
#include "kernels/ops/bias_rule.h"

namespace phasor {

// The most keys of one kernel call. Their indices stay in the first-level cache.
inline constexpr int64_t kBiasTile = 512;

// The arguments of the bias op. Borrows everything.
struct BiasArgs {
  const BiasRule* rule = nullptr;
  const Position* queries = nullptr;
  int64_t rows = 0;
  const Position* keys = nullptr;
  int64_t columns = 0;
  int64_t heads = 0;
  Dtype table_dtype = Dtype::kFloat32;
  const std::byte* table = nullptr;  // nullptr: the rule has slopes, or the output is indices
  Dtype dtype = Dtype::kFloat32;
  std::byte* out = nullptr;
  int64_t out_head_bytes = 0;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_head_bytes = 0;
  int64_t add_to_row_bytes = 0;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_BIAS_H_
