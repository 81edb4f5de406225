// SPDX-License-Identifier: Apache-2.0
// Requests -> prepared requests -> jobs.
#include "kernels/request.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "kernels/lookup.h"
#include "kernels/presets.h"
#include "kernels/spec_names.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr size_t kMaxTensors = 64;

template <typename... T>
absl::Status Invalid(const T&... message) {
  return absl::InvalidArgumentError(StrCat(message...));
}

// Tensors ---------------------------------------------------------------------------------------

absl::Status CheckExtents(const TensorDesc& tensor, std::string_view path) {
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] >= 0 && tensor.shape[i] <= kMaxExtent) continue;
    return Invalid(path, ".shape[", i, "]: ", tensor.shape[i],
                   " is out of range, must be in [0, 2^40]");
  }
  return absl::OkStatus();
}

bool IsEmpty(const TensorDesc& tensor) {
  return std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
}

absl::Status TooLarge(std::string_view path) {
  return Invalid(path, ": shape times element size passes 2^62 bytes, must not");
}

// Dense row-major strides in elements. Shape must be that of a tensor that DenseBytes accepts.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

absl::Status CheckStrideValues(const TensorDesc& tensor, std::string_view path) {
  if (tensor.strides.size() != tensor.shape.size()) {
    return Invalid(path, ".strides: ", tensor.strides.size(),
                   " entries, must be none or one per dimension (", tensor.shape.size(), ")");
  }
  for (size_t i = 0; i < tensor.strides.size(); ++i) {
    if (tensor.strides[i] >= 0) continue;
    return Invalid(path, ".strides[", i, "]: ", tensor.strides[i], " is negative, must be >= 0");
  }
  if (!tensor.strides.empty() && tensor.strides.back() != 1) {
    return Invalid(path, ".strides[", tensor.strides.size() - 1, "]: ", tensor.strides.back(),
                   ", the last must be 1");
  }
  return absl::OkStatus();
}

// Elements from the first to the last of a view that is not empty. Every dimension, by ascending
// stride, must step over all that the ones before it span, so that no two indices meet.
absl::StatusOr<int64_t> SpannedElements(const TensorDesc& tensor, std::string_view path) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] > 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensor.strides[a] < tensor.strides[b]; });
  int64_t spanned = 1;
  for (const size_t i : order) {
    if (tensor.strides[i] < spanned) {
      return Invalid(path, ".strides[", i, "]: ", tensor.strides[i],
                     " makes elements overlap, must be at least ", spanned);
    }
    int64_t step = 0;
    if (__builtin_mul_overflow(tensor.strides[i], tensor.shape[i] - 1, &step) ||
        __builtin_add_overflow(spanned, step, &spanned) || spanned > kMaxBytes) {
      return TooLarge(path);
    }
  }
  return spanned;
}

absl::Status CheckComputeDtype(Dtype dtype, std::string_view path) {
  if (IsComputeDtype(dtype)) return absl::OkStatus();
  return Invalid(path, ": ", Name(dtype), ", must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16");
}

// Common ----------------------------------------------------------------------------------------

absl::Status CheckKind(const ResolvedSpec& spec, SpecKind kind, std::string_view path) {
  if (spec.kind == kind) return absl::OkStatus();
  return Invalid(path, ".kind: ", Name(spec.kind), ", this call takes ", Name(kind));
}

// Rope ------------------------------------------------------------------------------------------

// Dimensions of a tensor to rotate, whatever its layout.
struct RopeDims {
  size_t batch_index = 0, token_index = 0, head_index = 0;
  bool has_batch = false;
};

RopeDims DimsOf(size_t rank, RopeLayout layout) {
  RopeDims dims;
  dims.has_batch = rank == 4;
  const size_t first = rank - 3;
  const bool tokens_first = layout == RopeLayout::kTokensHeads;
  dims.token_index = tokens_first ? first : first + 1;
  dims.head_index = tokens_first ? first + 1 : first;
  return dims;
}

RotaryStrides ByteStrides(const std::vector<int64_t>& strides, const RopeDims& dims, Dtype dtype) {
  const int64_t size = SizeOf(dtype);
  return {dims.has_batch ? strides[dims.batch_index] * size : 0, strides[dims.token_index] * size,
          strides[dims.head_index] * size};
}

absl::Status CheckRopeShape(const TensorDesc& tensor, const RopeDims& dims, std::string_view path) {
  PHASOR_RETURN_IF_ERROR(CheckExtents(tensor, path));
  for (const size_t i : {dims.head_index, tensor.shape.size() - 1}) {
    if (tensor.shape[i] == 0) return Invalid(path, ".shape[", i, "]: 0, must be at least 1");
  }
  return absl::OkStatus();
}

std::string TensorPath(std::string_view path, size_t i) {
  return StrCat(path, ".tensors[", i, "].tensor");
}

// Shape, strides and sizes of tensor i; the first one sets batch and tokens.
absl::Status PrepareTensor(const TensorDesc& tensor, size_t i, const RopeRequest& request,
                           std::string_view path, PreparedRope& out) {
  PHASOR_RETURN_IF_ERROR(CheckComputeDtype(tensor.dtype, StrCat(path, ".dtype")));
  const size_t rank = tensor.shape.size();
  if (rank != 3 && rank != 4) {
    const bool tokens_first = request.layout == RopeLayout::kTokensHeads;
    return Invalid(path, ".shape: ", rank, " dimensions, must be ",
                   tokens_first ? "[tokens, heads, head_dim]" : "[heads, tokens, head_dim]",
                   " with an optional batch before them");
  }
  const RopeDims dims = DimsOf(rank, request.layout);
  PHASOR_RETURN_IF_ERROR(CheckRopeShape(tensor, dims, path));
  const int64_t batch = dims.has_batch ? tensor.shape[dims.batch_index] : 1;
  const int64_t tokens = tensor.shape[dims.token_index];
  if (i == 0) {
    out.batch = batch;
    out.tokens = tokens;
  }
  if (batch != out.batch) {
    return Invalid(path, ".shape: batch ", batch, ", must be that of the first tensor (", out.batch,
                   ")");
  }
  if (tokens != out.tokens) {
    return Invalid(path, ".shape[", dims.token_index, "]: ", tokens,
                   " tokens, must be those of the first tensor (", out.tokens, ")");
  }
  PreparedRope::Tensor prepared;
  prepared.dtype = tensor.dtype;
  prepared.shape = tensor.shape;
  prepared.heads = tensor.shape[dims.head_index];
  PHASOR_ASSIGN_OR_RETURN(prepared.output_bytes, DenseBytes(tensor, path));
  PHASOR_ASSIGN_OR_RETURN(prepared.input_bytes, SpannedBytes(tensor, path));
  std::vector<int64_t> strides = DenseStrides(tensor.shape);
  prepared.y_strides = ByteStrides(strides, dims, tensor.dtype);
  for (size_t k = 0; k < tensor.strides.size(); ++k) {
    if (tensor.shape[k] <= 1 || IsEmpty(tensor)) continue;  // never stepped over
    prepared.dense = prepared.dense && strides[k] == tensor.strides[k];
    strides[k] = tensor.strides[k];
  }
  prepared.x_strides = ByteStrides(strides, dims, tensor.dtype);
  out.tensors.push_back(std::move(prepared));
  return absl::OkStatus();
}

absl::Status PrepareTensors(const RopeRequest& request, std::string_view path, PreparedRope& out) {
  if (request.tensors.empty() || request.tensors.size() > kMaxTensors) {
    return Invalid(path, ".tensors: ", request.tensors.size(), " tensors, must be in [1, ",
                   kMaxTensors, "]");
  }
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    PHASOR_RETURN_IF_ERROR(PrepareTensor(request.tensors[i], i, request, TensorPath(path, i), out));
  }
  return absl::OkStatus();
}

// Resolves a rotary spec; head_dim, when nothing states it, is the tensors' last dimension.
absl::StatusOr<ResolvedSpec> ResolveRotary(Spec spec, const RopeRequest& request,
                                           std::string_view path, std::string_view spec_path) {
  const Preset* preset = FindPreset(spec.preset);
  const bool preset_states = preset != nullptr && preset->spec.head_dim.has_value();
  const auto kind = spec.kind.has_value() || preset == nullptr ? spec.kind : preset->spec.kind;
  if (kind == SpecKind::kRotary && !spec.head_dim.has_value() && !preset_states) {
    spec.head_dim = request.tensors[0].shape.back();
  }
  if (kind == SpecKind::kEncoding) {
    return Invalid(spec_path, ".kind: ENCODING, this call takes ROTARY");
  }
  PHASOR_ASSIGN_OR_RETURN(ResolvedSpec resolved, ResolveSpec(spec, spec_path));
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const std::vector<int64_t>& shape = request.tensors[i].shape;
    if (shape.back() == resolved.head_dim) continue;
    return Invalid(TensorPath(path, i), ".shape[", shape.size() - 1, "]: ", shape.back(),
                   ", must be the spec's head_dim (", resolved.head_dim, ")");
  }
  return resolved;
}

// Positions are one per token, or one per token of every batch entry.
absl::StatusOr<PositionSource> PrepareRopePositions(const Positions& positions, int axes,
                                                    const PreparedRope& rope,
                                                    std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(PositionSource source, MakePositionSource(positions, axes, path));
  if (source.tokens != rope.tokens) {
    return Invalid(path, ": ", source.tokens, " positions, must be one per token (", rope.tokens,
                   ")");
  }
  if (source.batch != 1 && source.batch != rope.batch) {
    return Invalid(path, ": batch ", source.batch, ", must be 1 or the tensors' batch (",
                   rope.batch, ")");
  }
  return source;
}

absl::Status CheckDeltaFields(const RopeRequest& request, std::string_view path) {
  const bool delta = request.direction == Direction::kDelta;
  if (delta && !request.from_positions.has_value()) {
    return Invalid(path, ".from_positions: not set, required for DELTA");
  }
  if (!delta && request.from_positions.has_value()) {
    return Invalid(path, ".from_positions: set, must be only for DELTA");
  }
  if (!delta && request.from_spec.has_value()) {
    return Invalid(path, ".from_spec: set, must be only for DELTA");
  }
  return absl::OkStatus();
}

// Keys that `from` rotated must be readable by `to`, lane for lane, at the same amplitude.
absl::Status CheckMove(const ResolvedSpec& from, const ResolvedSpec& to, std::string_view path) {
  if (from.rotary_dim != to.rotary_dim || from.rotary_begin != to.rotary_begin) {
    return absl::UnimplementedError(StrCat(path, ".from_spec: rotates lanes [", from.rotary_begin,
                                           ", ", from.rotary_begin + from.rotary_dim,
                                           "), moving keys to other lanes [", to.rotary_begin, ", ",
                                           to.rotary_begin + to.rotary_dim, ") is not built yet"));
  }
  if (from.frequency_heads != to.frequency_heads) {
    return Invalid(path, ".from_spec.frequency_heads: ", from.frequency_heads, ", must be ",
                   to.frequency_heads, " as of spec");
  }
  if (from.attention_factor != to.attention_factor) {
    return absl::UnimplementedError(
        StrCat(path, ".from_spec.attention_factor: ", from.attention_factor,
               ", moving keys to another amplitude (", to.attention_factor, ") is not built yet"));
  }
  if (from.pairing_out != to.pairing) {
    return Invalid(path, ".spec.pairing: ", Name(to.pairing), ", keys to move lie as ",
                   Name(from.pairing_out), " and must be read so");
  }
  return absl::OkStatus();
}

// Heads that have frequencies of their own are as many as the tensors'.
absl::Status CheckHeads(const ResolvedSpec& spec, const PreparedRope& out, std::string_view path) {
  if (spec.frequency_heads == 1) return absl::OkStatus();
  for (size_t i = 0; i < out.tensors.size(); ++i) {
    if (out.tensors[i].heads == spec.frequency_heads) continue;
    return Invalid(path, ".tensors[", i, "]: ", out.tensors[i].heads, " heads, must be ",
                   spec.frequency_heads, " (frequency_heads)");
  }
  return absl::OkStatus();
}

absl::Status PrepareDelta(const RopeRequest& request, const ResolvedSpec& to, PlanProvider plans,
                          std::string_view path, PreparedRope& out) {
  if (request.direction != Direction::kDelta) return absl::OkStatus();
  ResolvedSpec from = to;
  if (request.from_spec.has_value()) {
    const std::string from_path = StrCat(path, ".from_spec");
    PHASOR_ASSIGN_OR_RETURN(from, ResolveRotary(*request.from_spec, request, path, from_path));
  }
  for (const ResolvedSpec* spec : {static_cast<const ResolvedSpec*>(&from), &to}) {
    if (spec->precision == Precision::kExact) continue;
    return Invalid(path, spec == &to ? ".spec" : ".from_spec",
                   ".precision: PARITY, no upstream turns keys by a difference, must be EXACT");
  }
  PHASOR_RETURN_IF_ERROR(CheckMove(from, to, path));
  const std::string positions_path = StrCat(path, ".from_positions");
  PHASOR_ASSIGN_OR_RETURN(out.from_positions, PrepareRopePositions(*request.from_positions,
                                                                   from.axes, out, positions_path));
  if (out.from_positions->batch != out.positions.batch) {
    return Invalid(positions_path, ": ", out.from_positions->count(),
                   " positions, must be as many as positions (", out.positions.count(), ")");
  }
  out.from_positions_bytes = out.from_positions->data_bytes;
  if (from == to) {
    out.from_plan = out.plan;
    return absl::OkStatus();
  }
  PHASOR_ASSIGN_OR_RETURN(out.from_plan, plans(from));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> DenseBytes(const TensorDesc& tensor, std::string_view path) {
  PHASOR_RETURN_IF_ERROR(CheckExtents(tensor, path));
  if (IsEmpty(tensor)) return 0;
  int64_t bytes = SizeOf(tensor.dtype);
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMaxBytes) return TooLarge(path);
  }
  return bytes;
}

absl::StatusOr<int64_t> SpannedBytes(const TensorDesc& tensor, std::string_view path) {
  if (tensor.strides.empty()) return DenseBytes(tensor, path);
  PHASOR_RETURN_IF_ERROR(CheckExtents(tensor, path));
  PHASOR_RETURN_IF_ERROR(CheckStrideValues(tensor, path));
  if (IsEmpty(tensor)) return 0;
  PHASOR_ASSIGN_OR_RETURN(const int64_t elements, SpannedElements(tensor, path));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, SizeOf(tensor.dtype), &bytes) || bytes > kMaxBytes) {
    return TooLarge(path);
  }
  return bytes;
}

absl::Status CheckPins(const Pins& pins, std::string_view fingerprint, std::string_view path) {
  if (!pins.spec_fingerprint.empty() && pins.spec_fingerprint != fingerprint) {
    return absl::FailedPreconditionError(StrCat(path,
                                                ".pins.spec_fingerprint: ", pins.spec_fingerprint,
                                                " is pinned, the spec has ", fingerprint));
  }
  if (pins.numerics_version != 0 && pins.numerics_version != kNumericsVersion) {
    return absl::FailedPreconditionError(StrCat(path,
                                                ".pins.numerics_version: ", pins.numerics_version,
                                                " is pinned, this is ", kNumericsVersion));
  }
  return absl::OkStatus();
}

absl::Status PrepareAddTo(const EncodeRequest& request, std::string_view path,
                          PreparedEncode& out) {
  const std::string scale_path = StrCat(path, ".embedding_scale");
  if (!std::isfinite(request.embedding_scale)) {
    return Invalid(scale_path, ": ", request.embedding_scale, ", must be finite");
  }
  if (!request.add_to.has_value()) {
    if (request.embedding_scale != 1) return Invalid(scale_path, ": set without add_to, must be 1");
    return absl::OkStatus();
  }
  const TensorDesc& add_to = *request.add_to;
  const std::string add_path = StrCat(path, ".add_to");
  if (add_to.dtype != out.output.dtype) {
    return Invalid(add_path, ".dtype: ", Name(add_to.dtype), ", must be the output's ",
                   Name(out.output.dtype));
  }
  if (add_to.shape != out.output.shape) {
    return Invalid(add_path, ".shape: must be [positions, dim] = [", out.output.shape[0], ", ",
                   out.output.shape[1], "]");
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
  if (!request.table.empty()) return PrepareLookup(request, tables, path);
  if (request.out_of_range != OutOfRange::kStrict) {
    return Invalid(path, ".out_of_range: CLIP without table, must be STRICT or not set");
  }
  const std::string spec_path = StrCat(path, ".spec");
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(request.spec, spec_path));
  PHASOR_RETURN_IF_ERROR(CheckKind(resolved, SpecKind::kEncoding, spec_path));
  const std::string positions_path = StrCat(path, ".positions");
  PHASOR_ASSIGN_OR_RETURN(out.positions,
                          MakePositionSource(request.positions, resolved.axes, positions_path));
  out.positions_bytes = out.positions.data_bytes;
  out.output = {request.output_dtype, {out.positions.count(), resolved.dim}, {}};
  PHASOR_ASSIGN_OR_RETURN(out.output_bytes, DenseBytes(out.output, positions_path));
  PHASOR_RETURN_IF_ERROR(PrepareAddTo(request, path, out));
  PHASOR_ASSIGN_OR_RETURN(out.plan, plans(resolved));
  out.fingerprint = out.plan->fingerprint;
  PHASOR_RETURN_IF_ERROR(CheckPins(request.pins, out.fingerprint, path));
  return out;
}

absl::StatusOr<PreparedRope> PrepareRope(const RopeRequest& request, PlanProvider plans,
                                         std::string_view path) {
  PreparedRope out;
  PHASOR_RETURN_IF_ERROR(PrepareTensors(request, path, out));
  PHASOR_RETURN_IF_ERROR(CheckDeltaFields(request, path));
  const std::string spec_path = StrCat(path, ".spec");
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved,
                          ResolveRotary(request.spec, request, path, spec_path));
  PHASOR_RETURN_IF_ERROR(CheckHeads(resolved, out, path));
  const std::string positions_path = StrCat(path, ".positions");
  PHASOR_ASSIGN_OR_RETURN(
      out.positions, PrepareRopePositions(request.positions, resolved.axes, out, positions_path));
  out.positions_bytes = out.positions.data_bytes;
  out.inverse = request.direction == Direction::kInverse;
  PHASOR_ASSIGN_OR_RETURN(out.plan, plans(resolved));
  PHASOR_RETURN_IF_ERROR(PrepareDelta(request, resolved, plans, path, out));
  PHASOR_RETURN_IF_ERROR(CheckPins(request.pins, out.plan->fingerprint, path));
  return out;
}

EncodeJob MakeEncodeJob(const PreparedEncode& prepared, const std::byte* add_to,
                        std::byte* output) {
  const int64_t size = SizeOf(prepared.output.dtype);
  const int64_t dim = prepared.plan->spec.dim;
  EncodeJob job;
  job.plan = prepared.plan.get();
  job.positions = &prepared.positions;
  job.dtype = prepared.output.dtype;
  job.out = output;
  job.out_row_bytes = dim * size;
  if (prepared.add_to.has_value()) {
    const std::vector<int64_t>& strides = prepared.add_to->strides;
    const bool one_row = prepared.output.shape[0] <= 1;  // its stride may be anything
    job.add_to = add_to;
    job.add_to_row_bytes = (strides.empty() || one_row ? dim : strides[0]) * size;
  }
  job.embedding_scale = prepared.embedding_scale;
  return job;
}

RotaryJob MakeRotaryJob(const PreparedRope& prepared, absl::Span<const std::byte* const> x,
                        absl::Span<std::byte* const> y) {
  RotaryJob job;
  job.plan = prepared.plan.get();
  job.positions = &prepared.positions;
  if (prepared.from_positions.has_value()) {
    job.from_plan = prepared.from_plan.get();
    job.from_positions = &*prepared.from_positions;
  }
  job.inverse = prepared.inverse;
  job.batch = prepared.batch;
  job.tokens = prepared.tokens;
  for (size_t i = 0; i < prepared.tensors.size(); ++i) {
    const PreparedRope::Tensor& tensor = prepared.tensors[i];
    job.tensors.push_back(
        {tensor.dtype, tensor.heads, x[i], tensor.x_strides, y[i], tensor.y_strides});
  }
  return job;
}

}  // namespace phasor
