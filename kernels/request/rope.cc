// SPDX-License-Identifier: Apache-2.0
// Prepares rotation requests and cuts out runs of their tokens. See kernels/request/request.h for
// the declarations.
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/paged_cache.h"
#include "kernels/request/request.h"
#include "kernels/request/rotary_spec.h"

namespace phasor {
namespace {

constexpr size_t kMaxTensors = 64;

// The dimensions of a tensor to rotate, for either layout.
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
    if (tensor.shape[i] == 0) return Invalid(path, ".shape[", i, "]: 0; must be at least 1");
  }
  return absl::OkStatus();
}

std::string TensorPath(std::string_view path, size_t i) {
  return StrCat(path, ".tensors[", i, "].tensor");
}

// Sets shape, strides and sizes of the next tensor. The first tensor sets batch and tokens.
absl::Status PrepareTensor(const TensorDesc& tensor, const RopeRequest& request,
                           std::string_view path, PreparedRope& out) {
  PHASOR_RETURN_IF_ERROR(CheckComputeDtype(tensor.dtype, StrCat(path, ".dtype")));
  const size_t rank = tensor.shape.size();
  if (rank != 3 && rank != 4) {
    const bool tokens_first = request.layout == RopeLayout::kTokensHeads;
    return Invalid(path, ".shape: ", rank, " dimensions; must be ",
                   tokens_first ? "[tokens, heads, head_dim]" : "[heads, tokens, head_dim]",
                   " with an optional batch before them");
  }
  const RopeDims dims = DimsOf(rank, request.layout);
  PHASOR_RETURN_IF_ERROR(CheckRopeShape(tensor, dims, path));
  const int64_t batch = dims.has_batch ? tensor.shape[dims.batch_index] : 1;
  const int64_t tokens = tensor.shape[dims.token_index];
  if (out.tensors.empty()) {
    out.batch = batch;
    out.tokens = tokens;
  }
  if (batch != out.batch) {
    return Invalid(path, ".shape: batch ", batch, "; must be that of the first tensor (", out.batch,
                   ")");
  }
  if (tokens != out.tokens) {
    return Invalid(path, ".shape[", dims.token_index, "]: ", tokens,
                   " tokens; must be those of the first tensor (", out.tokens, ")");
  }
  PreparedRope::Tensor prepared;
  prepared.dtype = tensor.dtype;
  prepared.output_dtype = tensor.dtype;
  prepared.shape = tensor.shape;
  prepared.heads = tensor.shape[dims.head_index];
  PHASOR_ASSIGN_OR_RETURN(prepared.output_bytes, DenseBytes(tensor, path));
  PHASOR_ASSIGN_OR_RETURN(prepared.input_bytes, SpannedBytes(tensor, path));
  std::vector<int64_t> strides = DenseStrides(tensor.shape);
  prepared.y_strides = ByteStrides(strides, dims, tensor.dtype);
  for (size_t k = 0; k < tensor.strides.size(); ++k) {
    if (tensor.shape[k] <= 1 || IsEmpty(tensor)) continue;  // its stride is not used
    prepared.dense = prepared.dense && strides[k] == tensor.strides[k];
    strides[k] = tensor.strides[k];
  }
  prepared.x_strides = ByteStrides(strides, dims, tensor.dtype);
  out.tensors.push_back(std::move(prepared));
  return absl::OkStatus();
}

// Sets type and strides of the output of tensor i.
absl::Status PrepareOutput(const RopeOutput& output, size_t i, const RopeRequest& request,
                           std::string_view path, PreparedRope& out) {
  // PrepareTensor has made it like its input.
  if (!output.dtype.has_value() && !output.inv_scale.has_value()) return absl::OkStatus();
  const std::string tensor_path = StrCat(path, ".tensors[", i, "]");
  const bool is_paged_key =
      request.paged_cache.has_value() && static_cast<int64_t>(i) == request.paged_cache->key_index;
  if (is_paged_key && output.dtype.has_value()) {
    return Invalid(tensor_path, ".output_dtype: set; must be unset: keys go to paged_cache");
  }
  if (is_paged_key) return absl::OkStatus();
  PreparedRope::Tensor& tensor = out.tensors[i];
  PHASOR_RETURN_IF_ERROR(SetOutputType(output.dtype.value_or(tensor.dtype), output.inv_scale,
                                       tensor_path + ".output_dtype", tensor_path + ".inv_scale",
                                       tensor));
  tensor.y_strides = ByteStrides(DenseStrides(tensor.shape),
                                 DimsOf(tensor.shape.size(), request.layout), tensor.output_dtype);
  tensor.output_bytes = tensor.output_bytes / SizeOf(tensor.dtype) * SizeOf(tensor.output_dtype);
  return absl::OkStatus();
}

absl::Status PrepareTensors(const RopeRequest& request, std::string_view path, PreparedRope& out) {
  if (request.tensors.empty() || request.tensors.size() > kMaxTensors) {
    return Invalid(path, ".tensors: ", request.tensors.size(), " tensors; must be in [1, ",
                   kMaxTensors, "]");
  }
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    PHASOR_RETURN_IF_ERROR(PrepareTensor(request.tensors[i], request, TensorPath(path, i), out));
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    PHASOR_RETURN_IF_ERROR(PrepareOutput(request.outputs[i], i, request, path, out));
  }
  if (!request.paged_cache.has_value()) return absl::OkStatus();
  const PagedCache& cache = *request.paged_cache;
  if (cache.key_index < 0 || cache.key_index >= static_cast<int64_t>(request.tensors.size())) {
    return Invalid(path, ".paged_cache.key_index: ", cache.key_index, "; must be in [0, ",
                   request.tensors.size(), ")");
  }
  PHASOR_RETURN_IF_ERROR(
      PrepareTensor(cache.values, request, StrCat(path, ".paged_cache.values"), out));
  return PreparePages(request, path, out);
}

// Refuses what the scalar loops of PARITY cannot do.
absl::Status CheckParity(const PreparedRope& rope, const ResolvedSpec& spec,
                         std::string_view path) {
  if (spec.precision == Precision::kExact) return absl::OkStatus();
  if (rope.pages.has_value()) {
    return absl::UnimplementedError(
        StrCat(path, ".paged_cache: set for PARITY; must be unset or the precision EXACT"));
  }
  for (size_t i = 0; i < rope.tensors.size(); ++i) {
    if (rope.tensors[i].output_dtype == rope.tensors[i].dtype) continue;
    return absl::UnimplementedError(
        StrCat(path, ".tensors[", i, "].output_dtype: ", Name(rope.tensors[i].output_dtype),
               " for PARITY; must be the input's or the precision EXACT"));
  }
  return absl::OkStatus();
}

// Resolves the spec of a request and checks the widths of its tensors.
absl::StatusOr<ResolvedSpec> ResolveRotary(const Spec& spec, const RopeRequest& request,
                                           std::string_view path, std::string_view spec_path) {
  PHASOR_ASSIGN_OR_RETURN(ResolvedSpec resolved,
                          ResolveRotarySpec(spec, request.tensors[0].shape.back(), spec_path));
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const std::vector<int64_t>& shape = request.tensors[i].shape;
    if (shape.back() == resolved.head_dim) continue;
    return Invalid(TensorPath(path, i), ".shape[", shape.size() - 1, "]: ", shape.back(),
                   "; must be the spec's head_dim (", resolved.head_dim, ")");
  }
  if (!request.paged_cache.has_value()) return resolved;
  const std::vector<int64_t>& values = request.paged_cache->values.shape;
  if (values.back() == resolved.head_dim) return resolved;
  return Invalid(path, ".paged_cache.values.shape[", values.size() - 1, "]: ", values.back(),
                 "; must be the spec's head_dim (", resolved.head_dim, ")");
}

// Positions: one per token, or one per token of every batch entry.
absl::StatusOr<PositionSource> PrepareRopePositions(const Positions& positions, int axes,
                                                    const PreparedRope& rope,
                                                    std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(PositionSource source, MakePositionSource(positions, axes, path));
  if (source.tokens != rope.tokens) {
    return Invalid(path, ": ", source.tokens, " positions; must be one per token (", rope.tokens,
                   ")");
  }
  if (source.batch != 1 && source.batch != rope.batch) {
    return Invalid(path, ": batch ", source.batch, "; must be 1 or the tensors' batch (",
                   rope.batch, ")");
  }
  return source;
}

absl::Status CheckDeltaFields(const RopeRequest& request, std::string_view path) {
  const bool delta = request.direction == Direction::kDelta;
  if (delta && !request.from_positions.has_value()) {
    return Invalid(path, ".from_positions: not set; must be given for DELTA");
  }
  if (!delta && request.from_positions.has_value()) {
    return Invalid(path, ".from_positions: set; must be only for DELTA");
  }
  if (!delta && request.from_spec.has_value()) {
    return Invalid(path, ".from_spec: set; must be only for DELTA");
  }
  return absl::OkStatus();
}

// If frequencies differ between heads, every tensor must have that number of heads.
absl::Status CheckHeads(const RopeRequest& request, const Plan& plan, std::string_view path) {
  if (plan.heads == 1) return absl::OkStatus();
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const std::vector<int64_t>& shape = request.tensors[i].shape;
    const size_t index = DimsOf(shape.size(), request.layout).head_index;
    if (shape[index] == plan.heads) continue;
    return Invalid(TensorPath(path, i), ".shape[", index, "]: ", shape[index],
                   " heads; must be the spec's frequency_heads (", plan.heads, ")");
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
                   ".precision: PARITY, no upstream turns keys by a difference; must be EXACT");
  }
  const std::string positions_path = StrCat(path, ".from_positions");
  PHASOR_ASSIGN_OR_RETURN(out.from_positions, PrepareRopePositions(*request.from_positions,
                                                                   from.axes, out, positions_path));
  if (out.from_positions->batch != out.positions.batch) {
    return Invalid(positions_path, ": ", out.from_positions->count(),
                   " positions; must be as many as positions (", out.positions.count(), ")");
  }
  out.from_positions_bytes = out.from_positions->data_bytes;
  out.from_plan = out.plan;
  if (from != to) {
    PHASOR_ASSIGN_OR_RETURN(out.from_plan, plans(from));
  }
  return CheckDelta(*out.from_plan, *out.plan, StrCat(path, ".from_spec"));
}

}  // namespace

absl::StatusOr<PreparedRope> PrepareRope(const RopeRequest& request, PlanProvider plans,
                                         std::string_view path) {
  PreparedRope out;
  out.layout = request.layout;
  PHASOR_RETURN_IF_ERROR(PrepareTensors(request, path, out));
  PHASOR_RETURN_IF_ERROR(CheckDeltaFields(request, path));
  const std::string spec_path = StrCat(path, ".spec");
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved,
                          ResolveRotary(request.spec, request, path, spec_path));
  PHASOR_RETURN_IF_ERROR(CheckParity(out, resolved, path));
  const std::string positions_path = StrCat(path, ".positions");
  PHASOR_ASSIGN_OR_RETURN(
      out.positions, PrepareRopePositions(request.positions, resolved.axes, out, positions_path));
  out.positions_bytes = out.positions.data_bytes;
  out.inverse = request.direction == Direction::kInverse;
  PHASOR_ASSIGN_OR_RETURN(out.plan, plans(resolved));
  PHASOR_RETURN_IF_ERROR(CheckHeads(request, *out.plan, path));
  if (out.inverse) PHASOR_RETURN_IF_ERROR(CheckAmplitude(*out.plan, spec_path));
  PHASOR_RETURN_IF_ERROR(PrepareDelta(request, resolved, plans, path, out));
  PHASOR_RETURN_IF_ERROR(CheckPins(request.pins, out.plan->fingerprint, path));
  return out;
}

absl::Status ReplacePositions(const Positions& positions, std::string_view path,
                              PreparedRope* prepared) {
  PHASOR_ASSIGN_OR_RETURN(
      prepared->positions,
      PrepareRopePositions(positions, prepared->plan->spec.axes, *prepared, path));
  prepared->positions_bytes = prepared->positions.data_bytes;
  return absl::OkStatus();
}

PreparedRope SliceTokens(const PreparedRope& prepared, int64_t first, int64_t count) {
  PreparedRope slice;  // member by member: copying all sequences of positions may be expensive
  slice.plan = prepared.plan;
  slice.from_plan = prepared.from_plan;
  slice.inverse = prepared.inverse;
  slice.layout = prepared.layout;
  slice.tensors = prepared.tensors;
  slice.tokens = count;
  slice.positions = SliceTokens(prepared.positions, first, count);
  slice.positions_bytes = slice.positions.data_bytes;
  if (prepared.from_positions.has_value()) {
    slice.from_positions = SliceTokens(*prepared.from_positions, first, count);
    slice.from_positions_bytes = slice.from_positions->data_bytes;
  }
  for (PreparedRope::Tensor& tensor : slice.tensors) {
    const RopeDims dims = DimsOf(tensor.shape.size(), prepared.layout);
    tensor.shape[dims.token_index] = count;
    const std::vector<int64_t> strides = DenseStrides(tensor.shape);
    tensor.x_strides = ByteStrides(strides, dims, tensor.dtype);
    tensor.y_strides = ByteStrides(strides, dims, tensor.output_dtype);
    const int64_t elements = count * tensor.heads * tensor.shape.back();
    tensor.input_bytes = elements * SizeOf(tensor.dtype);
    tensor.output_bytes = elements * SizeOf(tensor.output_dtype);
  }
  return slice;
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
    RotaryTensor& out = job.tensors.emplace_back(
        RotaryTensor{tensor.dtype, tensor.heads, x[i], tensor.x_strides, y[i], tensor.y_strides});
    out.float8 = Float8Of(tensor.output_dtype);
    out.inv_scale = tensor.inv_scale;
    out.rotates = tensor.rotates;
  }
  if (!prepared.pages.has_value()) return job;
  job.tensors[prepared.pages->key_index].y_offsets = prepared.pages->key_offsets.data();
  job.tensors.back().y_offsets = prepared.pages->value_offsets.data();
  return job;
}

}  // namespace phasor
