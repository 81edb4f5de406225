// SPDX-License-Identifier: Apache-2.0
// Checks requests for attention biases (rule, positions, table, scores) and makes their jobs.
#include "kernels/request/bias.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/sha256.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/tensor/integer_positions.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {
namespace {

// The difference of two positions fits int64.
constexpr int64_t kMaxPosition = (int64_t{1} << 62) - 1;

bool WantsIndices(const BiasRequest& request) {
  return request.output_dtype == Dtype::kInt32 || request.output_dtype == Dtype::kInt64;
}

absl::Status CheckHeads(const BiasRequest& request, std::string_view path) {
  if (request.heads < 1 || request.heads > kMaxBiasHeads) {
    return Invalid(path, ".heads: ", request.heads, "; must be in [1, ", kMaxBiasHeads, "]");
  }
  if (WantsIndices(request) && request.heads != 1) {
    return Invalid(path, ".heads: ", request.heads, "; must be 1 for ", Name(request.output_dtype),
                   " output: rows of the table are the same for all heads");
  }
  return absl::OkStatus();
}

absl::Status CheckOutputDtype(const BiasRequest& request, const BiasRule& rule,
                              std::string_view path) {
  const Dtype dtype = request.output_dtype;
  const std::string field = StrCat(path, ".output_dtype");
  if (rule.family == BiasFamily::kDeberta && !WantsIndices(request)) {
    return Invalid(field, ": ", Name(dtype), ", but DEBERTA gives buckets; must be INT32 or INT64");
  }
  if (rule.has_slopes() && !IsComputeDtype(dtype)) {
    return Invalid(field, ": ", Name(dtype), "; must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16");
  }
  if (IsComputeDtype(dtype) || WantsIndices(request)) return absl::OkStatus();
  return Invalid(field, ": ", Name(dtype),
                 "; must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16, or INT32 or INT64 for buckets");
}

absl::StatusOr<PositionSource> PreparePositions(const std::optional<Positions>& positions,
                                                const BiasRule& rule, std::string_view path) {
  if (!positions.has_value()) {
    if (rule.family != BiasFamily::kSwin) return Invalid(path, ": not set; must be given");
    const PositionGrid window{{IntegerRange{0, 1, rule.window[0]},  //
                               IntegerRange{0, 1, rule.window[1]}}};
    return MakePositionSource(window, rule.axes, path);
  }
  PHASOR_RETURN_IF_ERROR(CheckIntegerPositions(*positions, path));
  PHASOR_ASSIGN_OR_RETURN(PositionSource source, MakePositionSource(*positions, rule.axes, path));
  if (source.batch == 1) return source;
  return Invalid(path, ": batch ", source.batch, "; must be one sequence");
}

absl::Status CheckTableShape(int64_t rows, int64_t columns, int64_t heads, const BiasRule& rule,
                             std::string_view path) {
  if (rows != rule.table_rows) {
    return Invalid(path, ": ", rows, " rows; must be ", rule.table_rows, " for ",
                   Name(rule.family));
  }
  if (columns == heads) return absl::OkStatus();
  return Invalid(path, ": ", columns, " heads; must be as many as heads (", heads, ")");
}

absl::Status PrepareValues(const BiasRequest& request, std::string_view path, PreparedBias* out) {
  const TensorDesc& values = *request.table_values;
  const std::string field = StrCat(path, ".table_values");
  if (!IsComputeDtype(values.dtype)) {
    return Invalid(field, ".dtype: ", Name(values.dtype),
                   "; must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16");
  }
  if (values.shape.size() != 2 || !values.strides.empty()) {
    return Invalid(field, ".shape: ", ShapeText(values.shape), "; must be dense [rows, heads]");
  }
  PHASOR_RETURN_IF_ERROR(CheckTableShape(values.shape[0], values.shape[1], request.heads,
                                         *out->rule, StrCat(field, ".shape")));
  PHASOR_ASSIGN_OR_RETURN(out->table_bytes, DenseBytes(values, field));
  out->table_dtype = values.dtype;
  return absl::OkStatus();
}

// A rule with a table needs exactly one, unless the request wants the indices of its rows.
absl::Status PrepareTable(const BiasRequest& request, const TableSource* tables,
                          std::string_view path, PreparedBias* out) {
  const std::string field = StrCat(path, ".table");
  const bool named = !request.table.empty();
  const bool given = named || request.table_values.has_value();
  if (out->rule->has_slopes() || WantsIndices(request)) {
    if (!given) return absl::OkStatus();
    return Invalid(field, ": set; must be only for values of T5, CLIPPED and SWIN");
  }
  if (!given) return Invalid(field, ": not set; must be given, or table_values");
  if (!named) return PrepareValues(request, path, out);
  if (request.table_values.has_value()) {
    return Invalid(field, ": set beside table_values; must be one of the two");
  }
  PHASOR_ASSIGN_OR_RETURN(out->table, FindTable(tables, request.table, field));
  out->table_dtype = out->table->dtype;
  return CheckTableShape(out->table->rows, out->table->columns, request.heads, *out->rule, field);
}

absl::Status PrepareScores(const BiasRequest& request, std::string_view path, PreparedBias* out) {
  if (!request.add_to.has_value()) return absl::OkStatus();
  const TensorDesc& add_to = *request.add_to;
  const std::string field = StrCat(path, ".add_to");
  if (WantsIndices(request)) return Invalid(field, ": set; must not be for buckets");
  if (add_to.dtype != out->output.dtype) {
    return Invalid(field, ".dtype: ", Name(add_to.dtype), "; must be the output's ",
                   Name(out->output.dtype));
  }
  if (add_to.shape != out->output.shape) {
    return Invalid(field, ".shape: ", ShapeText(add_to.shape),
                   "; must be [heads, queries, keys] = ", ShapeText(out->output.shape));
  }
  PHASOR_ASSIGN_OR_RETURN(out->add_to_bytes, SpannedBytes(add_to, field));
  out->add_to = add_to;
  return absl::OkStatus();
}

std::string FingerprintOf(const PreparedBias& prepared) {
  const BiasSpec& spec = prepared.rule->spec;
  return Sha256Hex(StrCat("bias ", kNumericsVersion, " ", Name(prepared.rule->family), " ",
                          spec.num_buckets.value_or(0), " ", spec.max_distance.value_or(0), " ",
                          spec.bidirectional.value_or(false), " ", absl::StrJoin(spec.window, "x"),
                          " ", prepared.output.shape[0], " ",
                          prepared.table == nullptr ? "" : prepared.table->sha256))
      .substr(0, 32);
}

absl::Status CheckMagnitudes(const Interval& interval, std::string_view path) {
  for (const int64_t position : {interval.min, interval.max}) {
    if (position >= -kMaxPosition && position <= kMaxPosition) continue;
    return Invalid(path, ": position ", position, "; must be below 2^62 in magnitude");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreparedBias> PrepareBias(const BiasRequest& request, const TableSource* tables,
                                         std::string_view path) {
  if (WantsIndices(request) && request.heads == 0) {
    BiasRequest of_one_head = request;
    of_one_head.heads = 1;
    return PrepareBias(of_one_head, tables, path);
  }
  PHASOR_RETURN_IF_ERROR(CheckHeads(request, path));
  PreparedBias out;
  PHASOR_ASSIGN_OR_RETURN(CompiledBias rule, CompileBias(request.spec, request.heads, path));
  out.rule = std::make_shared<const CompiledBias>(std::move(rule));
  PHASOR_RETURN_IF_ERROR(CheckOutputDtype(request, *out.rule, path));
  PHASOR_ASSIGN_OR_RETURN(out.queries, PreparePositions(request.query_positions, *out.rule,
                                                        StrCat(path, ".query_positions")));
  PHASOR_ASSIGN_OR_RETURN(
      out.keys, PreparePositions(request.key_positions, *out.rule, StrCat(path, ".key_positions")));
  out.queries_bytes = out.queries.data_bytes;
  out.keys_bytes = out.keys.data_bytes;
  out.output = {request.output_dtype, {request.heads, out.queries.count(), out.keys.count()}, {}};
  PHASOR_ASSIGN_OR_RETURN(out.output_bytes, DenseBytes(out.output, path));
  PHASOR_RETURN_IF_ERROR(PrepareScores(request, path, &out));
  PHASOR_RETURN_IF_ERROR(PrepareTable(request, tables, path, &out));
  out.fingerprint = FingerprintOf(out);
  PHASOR_RETURN_IF_ERROR(CheckPins(request.pins, out.fingerprint, path));
  return out;
}

absl::Status CheckBiasPositions(const PreparedBias& prepared, std::string_view path) {
  if (prepared.output_bytes == 0) return absl::OkStatus();
  for (int axis = 0; axis < prepared.rule->axes; ++axis) {
    const Interval queries = IntervalOf(prepared.queries, axis);
    const Interval keys = IntervalOf(prepared.keys, axis);
    const std::string query_path = StrCat(path, ".query_positions");
    PHASOR_RETURN_IF_ERROR(CheckMagnitudes(queries, query_path));
    PHASOR_RETURN_IF_ERROR(CheckMagnitudes(keys, StrCat(path, ".key_positions")));
    if (prepared.rule->family != BiasFamily::kSwin) continue;
    const int64_t extent = prepared.rule->window[static_cast<size_t>(axis)];
    const int64_t furthest = std::max(queries.max - keys.min, keys.max - queries.min);
    if (furthest < extent) continue;
    return absl::OutOfRangeError(StrCat(query_path, ": up to ", furthest, " from the keys on axis ",
                                        axis, "; must be below the window's ", extent));
  }
  return absl::OkStatus();
}

BiasJob MakeBiasJob(const PreparedBias& prepared, const std::byte* table_values,
                    const std::byte* add_to, std::byte* output) {
  const int64_t element = SizeOf(prepared.output.dtype);
  BiasJob job;
  job.rule = prepared.rule.get();
  job.queries = &prepared.queries;
  job.keys = &prepared.keys;
  job.heads = prepared.output.shape[0];
  job.table_dtype = prepared.table_dtype;
  job.table = prepared.table == nullptr ? table_values : prepared.table->data.get();
  job.dtype = prepared.output.dtype;
  job.out = output;
  job.out_row_bytes = prepared.output.shape[2] * element;
  job.out_head_bytes = prepared.output.shape[1] * job.out_row_bytes;
  if (prepared.add_to_bytes > 0) {
    const std::vector<int64_t>& strides = prepared.add_to->strides;
    job.add_to = add_to;
    job.add_to_head_bytes = strides.empty() ? job.out_head_bytes : strides[0] * element;
    job.add_to_row_bytes = strides.empty() ? job.out_row_bytes : strides[1] * element;
  }
  return job;
}

}  // namespace phasor
