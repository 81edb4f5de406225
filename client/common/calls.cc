// SPDX-License-Identifier: Apache-2.0
// Turns a client's calls into requests of the kernels, checks that the caller's memory holds what
// its shapes say, and copies strided tensors.
#include "client/common/calls.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "client/device_memory.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec_base.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor::client_internal {
namespace {

std::string Text(const TensorDesc& tensor) {
  return StrCat(Name(tensor.dtype), " ", ShapeText(tensor.shape));
}

// The memory of a view must hold what its shape and strides span.
absl::Status CheckMemory(const TensorDesc& tensor, int64_t bytes, std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const int64_t spanned, SpannedBytes(tensor, path));
  if (bytes >= spanned) return absl::OkStatus();
  return InvalidAt(path, StrCat(bytes, " bytes of memory; must be the ", spanned, " that ",
                                Text(tensor), " spans"));
}

absl::Status NotOnDevice(std::string_view path) {
  return InvalidAt(path, "memory of a GPU; must be of the host");
}

// A call of `connection` may use only GPU memory that is registered with it and not yet released.
// If `connection` is nullptr, it may use no GPU memory.
absl::Status CheckDevice(const DevicePlace& device, const void* connection, std::string_view path) {
  if (device.memory == nullptr) return absl::OkStatus();
  if (connection == nullptr) return NotOnDevice(path);
  if (!device.memory->IsOf(connection)) {
    return InvalidAt(path, "memory of a GPU; must be registered with this client");
  }
  if (device.memory->ended()) {
    return absl::FailedPreconditionError(
        StrCat(path, ": memory of a GPU that was released; must be registered"));
  }
  const int64_t size = device.memory->size();
  if (device.offset_bytes >= 0 && device.offset_bytes <= size) return absl::OkStatus();
  return InvalidAt(StrCat(path, ".device.offset_bytes"),
                   StrCat(device.offset_bytes, "; must be in [0, ", size, "]"));
}

// Checks a tensor or an output. View is TensorView or MutableTensorView.
template <typename View>
absl::Status CheckView(const View& view, std::string_view path, const void* connection = nullptr) {
  PHASOR_RETURN_IF_ERROR(CheckDevice(view.device, connection, path));
  return CheckMemory(view.desc, view.bytes, path);
}

absl::Status CheckRopeTensor(const RopeTensor& tensor, std::string_view path,
                             const void* connection) {
  const TensorDesc& input = tensor.input.desc;
  const TensorDesc& output = tensor.output.desc;
  PHASOR_RETURN_IF_ERROR(CheckView(tensor.input, StrCat(path, ".tensor"), connection));
  const std::string output_path = StrCat(path, ".output");
  const bool float8 = Float8Of(output.dtype) != Float8::kNone;
  if ((output.dtype != input.dtype && !float8) || output.shape != input.shape) {
    return InvalidAt(output_path, StrCat(Text(output), "; must be as the input, ", Text(input)));
  }
  const bool in_place = tensor.output.data == tensor.input.data &&
                        tensor.output.device == tensor.input.device && tensor.output.bytes > 0;
  if (in_place && output.dtype != input.dtype) {
    return InvalidAt(output_path, "in place with another type; must be elsewhere");
  }
  if (in_place && StridesOf(output) != StridesOf(input)) {
    return InvalidAt(output_path, "in place with other strides; must be the input's");
  }
  return CheckView(tensor.output, output_path, connection);
}

// Checks a tensor whose output is a paged cache.
absl::Status CheckCacheTensor(const RopeTensor& tensor, std::string_view input_path,
                              std::string_view cache_path, const void* connection) {
  PHASOR_RETURN_IF_ERROR(CheckView(tensor.input, input_path, connection));
  return CheckView(tensor.output, cache_path, connection);
}

absl::StatusOr<PagedCache> ToPagedCache(const RopeCall& call, std::string_view path,
                                        const void* connection) {
  const PagedWrite& paged = *call.paged;
  const std::string paged_path = StrCat(path, ".paged_cache");
  if (paged.key_index < 0 || paged.key_index >= static_cast<int64_t>(call.tensors.size())) {
    return InvalidAt(StrCat(paged_path, ".key_index"),
                     StrCat(paged.key_index, "; must be in [0, ", call.tensors.size(), ")"));
  }
  const RopeTensor& keys = call.tensors[static_cast<size_t>(paged.key_index)];
  PHASOR_RETURN_IF_ERROR(CheckCacheTensor(keys,
                                          StrCat(path, ".tensors[", paged.key_index, "].tensor"),
                                          StrCat(paged_path, ".key_cache"), connection));
  PHASOR_RETURN_IF_ERROR(CheckCacheTensor(paged.values, StrCat(paged_path, ".values"),
                                          StrCat(paged_path, ".value_cache"), connection));
  PHASOR_RETURN_IF_ERROR(CheckView(paged.slot_mapping, StrCat(paged_path, ".slot_mapping")));
  return PagedCache{.key_index = paged.key_index,
                    .values = paged.values.input.desc,
                    .key_cache = keys.output.desc,
                    .value_cache = paged.values.output.desc,
                    .value_inv_scale = paged.values.inv_scale,
                    .slot_mapping = paged.slot_mapping.desc};
}

bool IsPagedKey(const RopeCall& call, size_t i) {
  return call.paged.has_value() && call.paged->key_index == static_cast<int64_t>(i);
}

RopeOutput ToOutput(const RopeCall& call, size_t i) {
  const RopeTensor& tensor = call.tensors[i];
  RopeOutput output{.dtype = std::nullopt, .inv_scale = tensor.inv_scale};
  if (!IsPagedKey(call, i) && tensor.output.desc.dtype != tensor.input.desc.dtype) {
    output.dtype = tensor.output.desc.dtype;
  }
  return output;
}

// Calls copy(strided offset, dense offset, bytes) for every contiguous run of elements.
template <typename Copy>
void ForEachRun(const TensorDesc& tensor, Copy copy) {
  const int64_t element = SizeOf(tensor.dtype);
  const int64_t total = ElementCount(tensor);
  if (total == 0) return;
  if (IsDense(tensor)) return copy(int64_t{0}, int64_t{0}, total * element);
  const std::vector<int64_t>& strides = tensor.strides;  // the last one is 1
  const size_t outer = tensor.shape.size() - 1;
  const int64_t run = tensor.shape[outer];
  std::vector<int64_t> index(outer, 0);
  int64_t offset = 0;
  for (int64_t done = 0; done < total; done += run) {
    copy(offset * element, done * element, run * element);
    for (size_t d = outer; d-- > 0;) {
      offset += strides[d];
      if (++index[d] < tensor.shape[d]) break;
      offset -= strides[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
}

// Of pools on a GPU, the server knows where they are.
absl::Status CheckPoolsApart(const std::vector<KeyPool>& pools, std::string_view path) {
  const auto begin = [&](size_t i) { return pools[i].memory().data(); };
  std::vector<size_t> order(pools.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::less<>()(begin(a), begin(b)); });
  for (size_t i = 1; i < order.size(); ++i) {
    const absl::Span<std::byte> before = pools[order[i - 1]].memory();
    if (before.empty() || pools[order[i]].memory().empty()) continue;
    if (!std::less<>()(begin(order[i]), before.data() + before.size())) continue;
    return InvalidAt(StrCat(path, ".pools[", order[i], "]"),
                     StrCat("overlaps ", path, ".pools[", order[i - 1],
                            "]; must be one pool with several places"));
  }
  return absl::OkStatus();
}

// The pool of one call of a batch.
struct PoolRange {
  uintptr_t begin;
  size_t bytes;
  size_t call;
  size_t pool;
  bool written;
  uintptr_t end() const { return begin + bytes; }
};

// Which pools the call writes, as far as its indexes are right.
std::vector<bool> WrittenPools(const MoveCall& call) {
  std::vector<bool> written(call.pools.size());
  if (call.mode == MoveMode::kCompare) return written;
  const auto note = [&](const KeyPlace& place) {
    if (place.pool >= 0 && place.pool < std::ssize(call.pools)) {
      written[static_cast<size_t>(place.pool)] = true;
    }
  };
  for (const KeyLayer& layer : call.layers) note(layer.to_place.value_or(layer.place));
  for (const KeyGroup& group : call.groups) {
    if (group.slot_positions.has_value()) note(*group.slot_positions);
  }
  return written;
}

}  // namespace

absl::Status CheckPositions(const PositionList& positions, std::string_view path) {
  const auto* tensor = std::get_if<PositionTensor>(&positions.value());
  if (tensor == nullptr) return absl::OkStatus();
  const std::string tensor_path = StrCat(path, ".tensor");
  if (positions.on_device()) return NotOnDevice(tensor_path);
  if (positions.strided()) {
    return InvalidAt(StrCat(tensor_path, ".strides"), "given; must be empty: dense positions");
  }
  return CheckMemory({tensor->dtype, tensor->shape, {}},
                     static_cast<int64_t>(positions.bytes().size()), tensor_path);
}

std::string BatchItemPath(size_t i) { return StrCat("items[", i, "]"); }

absl::StatusOr<EncodeRequest> ToRequest(const EncodeCall& call, std::string_view path,
                                        const void* connection) {
  EncodeRequest request{.spec = call.spec,
                        .positions = call.positions.value(),
                        .output_dtype = call.output_dtype,
                        .embedding_scale = call.embedding_scale,
                        .output = call.form,
                        .pins = call.pins,
                        .table = call.table,
                        .out_of_range = call.out_of_range};
  PHASOR_RETURN_IF_ERROR(CheckBase(call.spec, StrCat(path, ".spec")));
  PHASOR_RETURN_IF_ERROR(CheckPositions(call.positions, StrCat(path, ".positions")));
  if (call.add_to.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckView(*call.add_to, StrCat(path, ".add_to"), connection));
    request.add_to = call.add_to->desc;
  }
  if (call.output.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckView(*call.output, StrCat(path, ".output"), connection));
  }
  return request;
}

absl::StatusOr<RopeRequest> ToRequest(const RopeCall& call, std::string_view path,
                                      const void* connection) {
  RopeRequest request{.spec = call.spec,
                      .positions = call.positions.value(),
                      .direction = call.direction,
                      .layout = call.layout,
                      .from_spec = call.from_spec,
                      .pins = call.pins};
  PHASOR_RETURN_IF_ERROR(CheckBase(call.spec, StrCat(path, ".spec")));
  if (call.from_spec.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckBase(*call.from_spec, StrCat(path, ".from_spec")));
  }
  PHASOR_RETURN_IF_ERROR(CheckPositions(call.positions, StrCat(path, ".positions")));
  if (call.paged.has_value()) {
    PHASOR_ASSIGN_OR_RETURN(request.paged_cache, ToPagedCache(call, path, connection));
  }
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (!IsPagedKey(call, i)) {
      PHASOR_RETURN_IF_ERROR(
          CheckRopeTensor(call.tensors[i], StrCat(path, ".tensors[", i, "]"), connection));
    }
    request.tensors.push_back(call.tensors[i].input.desc);
    request.outputs.push_back(ToOutput(call, i));
  }
  if (call.from_positions.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckPositions(*call.from_positions, StrCat(path, ".from_positions")));
    request.from_positions = call.from_positions->value();
  }
  return request;
}

absl::StatusOr<BiasRequest> ToRequest(const BiasCall& call, std::string_view path) {
  BiasRequest request{.spec = call.spec,
                      .heads = call.heads,
                      .table = call.table,
                      .output_dtype = call.output_dtype,
                      .pins = call.pins};
  if (call.query_positions.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckPositions(*call.query_positions, StrCat(path, ".query_positions")));
    request.query_positions = call.query_positions->value();
  }
  if (call.key_positions.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckPositions(*call.key_positions, StrCat(path, ".key_positions")));
    request.key_positions = call.key_positions->value();
  }
  if (call.table_values.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckTableValues(*call.table_values, StrCat(path, ".table_values")));
    request.table_values = call.table_values->desc;
    request.table_values->strides.clear();
  }
  if (call.add_to.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckView(*call.add_to, StrCat(path, ".add_to")));
    request.add_to = call.add_to->desc;
  }
  if (call.output.has_value()) {
    const std::string output_path = StrCat(path, ".output");
    PHASOR_RETURN_IF_ERROR(CheckView(*call.output, output_path));
    if (!IsDense(call.output->desc)) return InvalidAt(output_path, "strided; must be dense");
  }
  return request;
}

absl::StatusOr<MoveRequest> ToRequest(const MoveCall& call, std::string_view path,
                                      const void* connection) {
  MoveRequest request{.layouts = call.layouts,
                      .specs = call.specs,
                      .layers = call.layers,
                      .groups = call.groups,
                      .mode = call.mode,
                      .tolerance = call.tolerance,
                      .pins = call.pins};
  for (const KeyPool& pool : call.pools) {
    const std::string pool_path = StrCat(path, ".pools[", request.pools.size(), "]");
    PHASOR_RETURN_IF_ERROR(CheckDevice(pool.device(), connection, pool_path));
    request.pools.push_back(pool.bytes());
  }
  PHASOR_RETURN_IF_ERROR(CheckPoolsApart(call.pools, path));
  for (size_t i = 0; i < call.specs.size(); ++i) {
    const std::string spec_path = StrCat(path, ".specs[", i, "]");
    PHASOR_RETURN_IF_ERROR(CheckBase(call.specs[i].spec, StrCat(spec_path, ".spec")));
    if (!call.specs[i].from_spec.has_value()) continue;
    PHASOR_RETURN_IF_ERROR(CheckBase(*call.specs[i].from_spec, StrCat(spec_path, ".from_spec")));
  }
  return request;
}

absl::Status CheckPoolsApart(const std::vector<MoveCall>& calls) {
  std::vector<PoolRange> ranges;
  for (size_t c = 0; c < calls.size(); ++c) {
    const std::vector<bool> written = WrittenPools(calls[c]);
    for (size_t p = 0; p < written.size(); ++p) {
      const absl::Span<std::byte> pool = calls[c].pools[p].memory();
      if (pool.empty()) continue;
      ranges.push_back({reinterpret_cast<uintptr_t>(pool.data()), pool.size(), c, p, written[p]});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const PoolRange& a, const PoolRange& b) { return a.begin < b.begin; });
  std::vector<const PoolRange*> open;  // that do not end before the next one begins
  for (const PoolRange& range : ranges) {
    std::erase_if(open, [&](const PoolRange* other) { return other->end() <= range.begin; });
    for (const PoolRange* other : open) {
      if (other->call == range.call || !(other->written || range.written)) continue;
      return InvalidAt(
          StrCat(BatchItemPath(range.call), ".pools[", range.pool, "]"),
          StrCat("overlaps ", BatchItemPath(other->call), ".pools[", other->pool,
                 "], and one of them is written; must be apart, or groups of one call"));
    }
    open.push_back(&range);
  }
  return absl::OkStatus();
}

absl::Status CheckTableValues(const TensorView& values, std::string_view path) {
  PHASOR_RETURN_IF_ERROR(CheckView(values, path));
  if (IsDense(values.desc)) return absl::OkStatus();
  return InvalidAt(path, "strided; must be dense");
}

absl::Span<const std::byte> PositionBytes(const PositionList& positions) {
  const auto* tensor = std::get_if<PositionTensor>(&positions.value());
  if (tensor == nullptr) return {};
  const int64_t count = ElementCount({tensor->dtype, tensor->shape, {}});
  return positions.bytes().first(static_cast<size_t>(count * SizeOf(tensor->dtype)));
}

int64_t ElementCount(const TensorDesc& tensor) {
  int64_t count = 1;
  for (int64_t extent : tensor.shape) count *= extent;
  return count;
}

std::vector<int64_t> StridesOf(const TensorDesc& tensor) {
  return tensor.strides.empty() ? DenseStrides(tensor.shape) : tensor.strides;
}

bool RowsAreDense(TensorDesc tensor) {
  tensor.shape[0] = 1;
  return IsDense(tensor);
}

RotaryStrides RotaryStridesOf(const TensorDesc& tensor, RopeLayout layout) {
  const int64_t element = SizeOf(tensor.dtype);
  const std::vector<int64_t> strides = StridesOf(tensor);
  const size_t first = strides.size() - 3;  // 1 if there is a batch dimension
  const bool tokens_first = layout == RopeLayout::kTokensHeads;
  return {.batch = first == 1 ? strides[0] * element : 0,
          .token = strides[tokens_first ? first : first + 1] * element,
          .head = strides[tokens_first ? first + 1 : first] * element};
}

absl::Status CheckOutput(const MutableTensorView& output, const TensorDesc& result,
                         std::string_view path) {
  const TensorDesc& given = output.desc;
  const bool flat = given.shape.size() == 1 && given.shape[0] == ElementCount(result);
  if (given.dtype == result.dtype && (given.shape == result.shape || flat)) {
    return absl::OkStatus();
  }
  return InvalidAt(path, StrCat(Text(given), "; must be ", Text(result)));
}

void CopyToDense(const TensorView& from, std::byte* to) {
  ForEachRun(from.desc, [&](int64_t strided, int64_t dense, int64_t bytes) {
    std::memcpy(to + dense, from.data + strided, static_cast<size_t>(bytes));
  });
}

void CopyFromDense(const std::byte* from, const MutableTensorView& to) {
  ForEachRun(to.desc, [&](int64_t strided, int64_t dense, int64_t bytes) {
    std::memcpy(to.data + strided, from + dense, static_cast<size_t>(bytes));
  });
}

}  // namespace phasor::client_internal
