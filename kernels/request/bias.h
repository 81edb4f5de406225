// SPDX-License-Identifier: Apache-2.0
// Requests for attention biases and their preparation, as kernels/request/request.h does for rows
// and rotations: the server and the in-process client share it.
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

struct BiasRequest {
  BiasSpec spec;
  int64_t heads = 0;
  // Integers, one axis. SWIN: two axes (row, column); the window's own grid when not set.
  std::optional<Positions> query_positions;
  std::optional<Positions> key_positions;
  std::string table;                       // name of a stored table [table_rows, heads], or
  std::optional<TensorDesc> table_values;  // the table itself, dense
  Dtype output_dtype = Dtype::kFloat32;    // INT32, INT64: the rows of the table, [1, q, k]
  std::optional<TensorDesc> add_to;        // scores [heads, q, k]
  Pins pins;
};

// A checked request. Byte counts are those of the memory that MakeBiasJob wants.
struct PreparedBias {
  std::shared_ptr<const CompiledBias> rule;
  PositionSource queries;  // without data
  PositionSource keys;     // without data
  int64_t queries_bytes = 0;
  int64_t keys_bytes = 0;
  std::shared_ptr<const Table> table;  // stored; nullptr: values come with the request, or none
  Dtype table_dtype = Dtype::kFloat32;
  int64_t table_bytes = 0;  // of values that come with the request
  TensorDesc output;        // dense [heads, queries, keys]
  int64_t output_bytes = 0;
  std::optional<TensorDesc> add_to;
  int64_t add_to_bytes = 0;  // what shape and strides span; 0: nothing to add
  std::string fingerprint;   // of the rule and a stored table; not of tensors in the request
};

// INVALID_ARGUMENT: fields, shapes, dtypes, positions. NOT_FOUND: no such preset or table.
// UNIMPLEMENTED: a table's name where `tables` is nullptr. FAILED_PRECONDITION: a pin differs.
absl::StatusOr<PreparedBias> PrepareBias(const BiasRequest& request, const TableSource* tables,
                                         std::string_view path);

// Checks the numbers of positions, whose data must be set. OUT_OF_RANGE: two that are further apart
// than the window; INVALID_ARGUMENT: a magnitude of 2^62 or more.
absl::Status CheckBiasPositions(const PreparedBias& prepared, std::string_view path);

// Joins a prepared request with memory; `prepared` must outlive the job. `table_values` is read
// when table_bytes > 0, `add_to` when add_to_bytes > 0.
BiasJob MakeBiasJob(const PreparedBias& prepared, const std::byte* table_values,
                    const std::byte* add_to, std::byte* output);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_BIAS_H_
