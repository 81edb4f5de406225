// SPDX-License-Identifier: Apache-2.0
// Prepares encoding requests, cuts out runs of their tokens, and makes jobs of encodings and
// rotations.
#include "kernels/request/request.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/lookup.h"
#include "kernels/spec/ladders.h"
#include "kernels/spec/names.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {
namespace {

// Checks that the output fits the spec: encodings have rows, rotary specs have tables.
absl::Status CheckOutput(const EncodeRequest& request, const ResolvedSpec& spec,
                         std::string_view path) {
  const SpecKind kind = spec.kind;
  const bool table = request.output != EncodeOutput::kEmbedding;
  if (kind == SpecKind::kRotary && !table) {
    return Invalid(path,
                   ".output: EMBEDDING of a ROTARY spec; must be a table: COS_SIN, COMPLEX, ... "
                   "(command line: --form cos-sin; Python: form=\"cos_sin\"; and so on)");
  }
  if (kind == SpecKind::kEncoding && table) {
    return Invalid(path, ".output: ", Name(request.output),
                   " of an ENCODING spec; must be EMBEDDING or not set");
  }
  if (table && IsDuplicated(request.output) && spec.pairing == Pairing::kBlockHalfSplit) {
    // A run of the layout begins at an even pair.
    const auto odd = [](int64_t width) { return width % 4 != 0; };
    if (std::any_of(spec.axes_dim.begin(), spec.axes_dim.end() - 1, odd)) {
      return Invalid(path, ".output: ", Name(request.output),
                     " of blocks whose widths are not multiples of 4; must be another table");
    }
  }
  if (table && request.add_to.has_value()) {
    return Invalid(path, ".add_to: set beside output ", Name(request.output),
                   "; must be only with EMBEDDING");
  }
  return absl::OkStatus();
}

// `path` is that of the positions, here and in SetOutputBytes.
absl::Status SetPositions(const Positions& positions, int axes, std::string_view path,
                          PreparedEncode& out) {
  PHASOR_ASSIGN_OR_RETURN(out.positions, MakePositionSource(positions, axes, path));
  out.positions_bytes = out.positions.data_bytes;
  return absl::OkStatus();
}

// Sets the size of the output, whose shape is set.
absl::Status SetOutputBytes(std::string_view path, PreparedEncode& out) {
  PHASOR_ASSIGN_OR_RETURN(out.output_bytes, DenseBytes(out.output, path));
  return absl::OkStatus();
}

// Sets layout and shape of the output, which CheckOutput has checked.
void SetOutput(const EncodeRequest& request, PreparedEncode& out) {
  out.output = {request.output_dtype, {out.positions.count()}};
  const Plan& plan = *out.plan;
  if (request.output == EncodeOutput::kEmbedding) {
    out.layout = std::shared_ptr<const RowLayout>(out.plan, &plan.layout);
    out.output.shape.push_back(plan.layout.width);
    return;
  }
  TablePairs pairs = {plan.heads, plan.spec.rotary_dim / 2, plan.head_pairs()};
  if (plan.spec.pairing == Pairing::kBlockHalfSplit) pairs.blocks = PairBlocksOf(plan.spec);
  out.layout = std::make_shared<const RowLayout>(TableLayout(request.output, pairs));
  const std::vector<int64_t> row = TableShape(request.output, pairs);
  out.output.shape.insert(out.output.shape.end(), row.begin(), row.end());
}

}  // namespace

absl::Status CheckPins(const Pins& pins, std::string_view fingerprint, std::string_view path) {
  if (!pins.spec_fingerprint.empty() && pins.spec_fingerprint != fingerprint) {
    return absl::FailedPreconditionError(
        StrCat(path, ".pins.spec_fingerprint: ", Shown(pins.spec_fingerprint),
               " is pinned, the spec has ", fingerprint, "; pin that or nothing"));
  }
  if (pins.numerics_version != 0 && pins.numerics_version != kNumericsVersion) {
    return absl::FailedPreconditionError(
        StrCat(path, ".pins.numerics_version: ", pins.numerics_version, " is pinned, this is ",
               kNumericsVersion, "; pin that or nothing"));
  }
  return absl::OkStatus();
}

absl::Status PrepareAddTo(const EncodeRequest& request, std::string_view path,
                          PreparedEncode& out) {
  if (!std::isfinite(request.embedding_scale)) {
    return Invalid(path, ".embedding_scale: ", request.embedding_scale, "; must be finite");
  }
  if (!request.add_to.has_value()) {
    if (request.embedding_scale == 1) return absl::OkStatus();
    return Invalid(path, ".embedding_scale: set without add_to; must be 1");
  }
  const TensorDesc& add_to = *request.add_to;
  const std::string add_path = StrCat(path, ".add_to");
  if (add_to.dtype != out.output.dtype) {
    return Invalid(add_path, ".dtype: ", Name(add_to.dtype), "; must be the output's ",
                   Name(out.output.dtype));
  }
  if (absl::MakeConstSpan(add_to.shape) != absl::MakeConstSpan(out.output.shape)) {
    return Invalid(add_path, ".shape: ", ShapeText(add_to.shape),
                   "; must be [positions, dim] = ", ShapeText(out.output.shape));
  }
  PHASOR_ASSIGN_OR_RETURN(out.add_to_bytes, SpannedBytes(add_to, add_path));
  out.add_to = add_to;
  out.embedding_scale = request.embedding_scale;
  return absl::OkStatus();
}

absl::StatusOr<PreparedEncode> PrepareEncode(const EncodeRequest& request, PlanProvider plans,
                                             std::string_view path, const TableSource* tables) {
  PreparedEncode out;
  PHASOR_RETURN_IF_ERROR(CheckComputeDtype(request.output_dtype, StrCat(path, ".output_dtype")));
  if (!request.table.empty()) {
    if (request.output == EncodeOutput::kEmbedding) return PrepareLookup(request, tables, path);
    return Invalid(path, ".output: ", Name(request.output),
                   " of a learned table; must be EMBEDDING or not set");
  }
  if (request.out_of_range != OutOfRange::kStrict) {
    return Invalid(path, ".out_of_range: CLIP without table; must be STRICT or not set");
  }
  const std::string spec_path = StrCat(path, ".spec");
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(request.spec, spec_path));
  PHASOR_RETURN_IF_ERROR(CheckOutput(request, resolved, path));
  const std::string positions_path = StrCat(path, ".positions");
  PHASOR_RETURN_IF_ERROR(SetPositions(request.positions, resolved.axes, positions_path, out));
  PHASOR_ASSIGN_OR_RETURN(out.plan, plans(resolved));
  SetOutput(request, out);
  PHASOR_RETURN_IF_ERROR(SetOutputBytes(positions_path, out));
  PHASOR_RETURN_IF_ERROR(PrepareAddTo(request, path, out));
  PHASOR_RETURN_IF_ERROR(CheckPins(request.pins, out.plan->fingerprint, path));
  return out;
}

absl::Status ReplacePositions(const Positions& positions, std::string_view path,
                              PreparedEncode* prepared) {
  PHASOR_RETURN_IF_ERROR(SetPositions(positions, prepared->plan->spec.axes, path, *prepared));
  prepared->output.shape[0] = prepared->positions.count();
  return SetOutputBytes(path, *prepared);
}

PreparedEncode SliceTokens(const PreparedEncode& prepared, int64_t first, int64_t count) {
  PreparedEncode slice;  // member by member: copying all sequences of positions may be expensive
  slice.plan = prepared.plan;
  slice.table = prepared.table;
  slice.out_of_range = prepared.out_of_range;
  slice.layout = prepared.layout;
  slice.table_fingerprint = prepared.table_fingerprint;
  slice.output = prepared.output;
  slice.add_to = prepared.add_to;
  slice.embedding_scale = prepared.embedding_scale;
  const int64_t tokens = prepared.positions.count();
  const int64_t row_bytes = tokens == 0 ? 0 : prepared.output_bytes / tokens;
  slice.positions = SliceTokens(prepared.positions, first, count);
  slice.positions_bytes = slice.positions.data_bytes;
  slice.output.shape[0] = count;
  slice.output_bytes = count * row_bytes;
  if (slice.add_to.has_value()) {
    slice.add_to->shape[0] = count;
    slice.add_to->strides.clear();
    slice.add_to_bytes = slice.output_bytes;
  }
  return slice;
}

EncodeJob MakeEncodeJob(const PreparedEncode& prepared, const std::byte* add_to,
                        std::byte* output) {
  const int64_t size = SizeOf(prepared.output.dtype);
  const int64_t width = prepared.layout->width;
  EncodeJob job;
  job.plan = prepared.plan.get();
  job.layout = prepared.layout.get();
  job.positions = &prepared.positions;
  job.dtype = prepared.output.dtype;
  job.out = output;
  job.out_row_bytes = width * size;
  if (prepared.add_to.has_value()) {
    const std::vector<int64_t>& strides = prepared.add_to->strides;
    const bool one_row = prepared.output.shape[0] <= 1;  // its stride may be anything
    job.add_to = add_to;
    job.add_to_row_bytes = (strides.empty() || one_row ? width : strides[0]) * size;
  }
  job.embedding_scale = prepared.embedding_scale;
  return job;
}

}  // namespace phasor
