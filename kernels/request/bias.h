// SPDX-License-Identifier: Apache-2.0
// Requests for attention biases and their preparation. As in kernels/request/request.h, the server
// and the in-process client share them.
#ifndef PHASOR_KERNELS_REQUEST_BIAS_H_
#define PHASOR_KERNELS_REQUEST_BIAS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend/batch.h"
#include "kernels/plan/bias_rule.h"
#include "kernels/request/request.h"
#include "kernels/tensor/positions.h"
#include "kernels/tensor/table.h"

namespace phasor {

// A request for an attention bias, not checked yet.
struct BiasRequest {
  BiasSpec spec;
  int64_t heads = 0;
  // Integers with one axis. SWIN: two axes (row, column); if not set, the window's own grid.
  std::optional<Positions> query_positions;
  std::optional<Positions> key_positions;
  std::string table;                       // name of a stored table [table_rows, heads], or
  std::optional<TensorDesc> table_values;  // the table itself, dense
  Dtype output_dtype = Dtype::kFloat32;    // INT32, INT64: indices of table rows, [1, q, k]
  std::optional<TensorDesc> add_to;        // scores [heads, q, k]
  Pins pins;
};

// A checked request. Its byte counts are sizes of the memory that MakeBiasJob needs.
struct PreparedBias {
  std::shared_ptr<const CompiledBias> rule;
  PositionSource queries;  // without data
  PositionSource keys;     // without data
  int64_t queries_bytes = 0;
  int64_t keys_bytes = 0;
  // A stored table; nullptr: its values come with the request, or none.
  std::shared_ptr<const Table> table;
  Dtype table_dtype = Dtype::kFloat32;
  int64_t table_bytes = 0;  // of a table that comes with the request, else 0
  TensorDesc output;        // dense [heads, queries, keys]
  int64_t output_bytes = 0;
  std::optional<TensorDesc> add_to;
  int64_t add_to_bytes = 0;  // spanned by shape and strides; 0: nothing to add
  std::string fingerprint;   // of the rule and a stored table; tensors of the request do not count
};

// INVALID_ARGUMENT: fields, shapes, dtypes or positions are wrong. NOT_FOUND: no such preset or
// table. UNIMPLEMENTED: a table is named but `tables` is nullptr. FAILED_PRECONDITION: a pin
// differs.
absl::StatusOr<PreparedBias> PrepareBias(const BiasRequest& request, const TableSource* tables,
                                         std::string_view path);

// Checks the values of positions, whose data must be set. OUT_OF_RANGE: two positions are further
// apart than the window. INVALID_ARGUMENT: a magnitude is 2^62 or more.
absl::Status CheckBiasPositions(const PreparedBias& prepared, std::string_view path);

// Combines a prepared request with memory. `prepared` must outlive the job. `table_values` is read
// if table_bytes > 0, `add_to` if add_to_bytes > 0.
BiasJob MakeBiasJob(const PreparedBias& prepared, const std::byte* table_values,
                    const std::byte* add_to, std::byte* output);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_BIAS_H_
