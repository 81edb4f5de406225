// SPDX-License-Identifier: Apache-2.0
// The lookup op: what a kernel is given and must compute. Writes rows of a learned table, and can
// add them to given rows.
//
//   row[t]    = position[t], clamped to [0, table_rows - 1]
//   out[t, c] = embedding_scale * add_to[t, c] + table[row[t], c]
//
// Source   docs/tables-and-biases.md.
// Shape    positions [rows]; table [table_rows, columns], dense; out, add_to [rows, columns],
//          columns contiguous.
// Unit     positions are whole numbers; strides are in bytes.
// Range    any position.
// Order    f32 arithmetic for FLOAT32, FLOAT16 and BFLOAT16, f64 for FLOAT64. A table element and
//          embedding_scale are first rounded to that type; then fma(embedding_scale, add_to,
//          element), and one rounding to the dtype. Equal dtypes and nothing to add: copied.
// Error    only from those roundings.
// Special  NaN and infinity stay in their column. rows == 0 touches nothing.
// Alias    add_to == out with equal strides is allowed; no other overlap. Any alignment.
#ifndef PHASOR_KERNELS_OPS_LOOKUP_H_
#define PHASOR_KERNELS_OPS_LOOKUP_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/math/phase.h"

namespace phasor {

// The arguments of the lookup op. Borrows everything.
struct LookupArgs {
  const std::byte* table = nullptr;
  Dtype table_dtype = Dtype::kFloat32;
  int64_t table_rows = 0;
  int64_t columns = 0;
  const Position* positions = nullptr;
  int64_t rows = 0;
  Dtype dtype = Dtype::kFloat32;
  std::byte* out = nullptr;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_row_bytes = 0;
  double embedding_scale = 1.0;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_LOOKUP_H_
