// SPDX-License-Identifier: Apache-2.0
// Writes calls as wire items. For each tensor it decides whether its bytes are sent or only its
// place in shared or GPU memory.
#include "client/grpc/wire_items.h"

#include <utility>
#include <variant>

#include "client/common/calls.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/tensor/tensor_desc.h"
#include "proto/convert.h"
#include "proto/convert_bias.h"
#include "proto/convert_move.h"

namespace phasor::client_internal {

void Payload::AddPositions(const PositionList& positions) {
  if (std::holds_alternative<PositionTensor>(positions.value())) {
    raw.push_back(PositionBytes(positions));
  }
}

SharedPlace Payload::PlaceOf(const DevicePlace& device) {
  names_device = true;
  return {device.memory->name(), device.offset_bytes, true};
}

absl::StatusOr<std::optional<SharedPlace>> Payload::AddTensor(const TensorView& tensor,
                                                              TensorDesc& desc) {
  std::optional<SharedPlace> place;
  if (tensor.device.memory != nullptr) {
    place = PlaceOf(tensor.device);
  } else if (leases != nullptr) {
    PHASOR_ASSIGN_OR_RETURN(const int64_t spanned, SpannedBytes(tensor.desc, "tensor"));
    if (auto leased = leases->Find(tensor.data, spanned); leased.has_value()) {
      place = {std::move(leased->token), leased->offset};
    }
  }
  if (place.has_value()) {
    if (IsDense(tensor.desc)) desc.strides.clear();
    return place;
  }
  const int64_t bytes = ElementCount(tensor.desc) * SizeOf(tensor.desc.dtype);
  desc.strides.clear();
  if (IsDense(tensor.desc)) {
    raw.emplace_back(tensor.data, static_cast<size_t>(bytes));
    return std::nullopt;
  }
  PHASOR_ASSIGN_OR_RETURN(Bytes dense, Bytes::Allocate(bytes));
  CopyToDense(tensor, dense.data());
  raw.emplace_back(dense.data(), static_cast<size_t>(bytes));
  gathered.push_back(std::move(dense));
  return std::nullopt;
}

std::optional<SharedPlace> Payload::AddPool(const KeyPool& pool) {
  if (pool.on_device()) return PlaceOf(pool.device());
  if (leases != nullptr) {
    auto leased = leases->Find(pool.memory().data(), pool.bytes());
    if (leased.has_value()) return SharedPlace{std::move(leased->token), leased->offset};
  }
  raw.emplace_back(pool.memory());
  return std::nullopt;
}

absl::StatusOr<std::optional<SharedPlace>> Payload::PlaceOutput(const MutableTensorView& output,
                                                                bool strided,
                                                                std::string_view path) {
  const bool can_be_placed = strided || IsDense(output.desc);
  if (output.device.memory != nullptr) {
    if (!can_be_placed) {
      return InvalidAt(StrCat(path, ".strides"),
                       "given; must be none on a GPU, or those of an input there");
    }
    ++destinations;
    return PlaceOf(output.device);
  }
  if (leases == nullptr || !can_be_placed) return std::nullopt;
  const absl::StatusOr<int64_t> spanned = SpannedBytes(output.desc, "output");
  if (!spanned.ok()) return std::nullopt;
  auto leased = leases->Find(output.data, *spanned);
  // The server writes whole elements, so the offset must be a multiple of the element size.
  if (!leased.has_value() || leased->offset % SizeOf(output.desc.dtype) != 0) return std::nullopt;
  ++destinations;
  return SharedPlace{std::move(leased->token), leased->offset};
}

namespace {

// `tensor` is one, or a pool.
template <typename Wire>
void SetPlace(const std::optional<SharedPlace>& place, Wire* tensor) {
  if (!place.has_value()) return;
  const auto set = [&](auto* ref) {
    ref->set_region(place->region);
    ref->set_offset_bytes(place->offset);
  };
  if (place->on_device) return set(tensor->mutable_device());
  set(tensor->mutable_region());
}

// Names the output of a rotated tensor, if the server is to write it. It has the strides of the
// input, or is dense.
absl::Status SetDestination(const RopeTensor& tensor, std::string_view path, Payload& payload,
                            v1::RopeTensor* wire) {
  // The server knows the input's strides only if it reads the input where it lies.
  const bool same = (wire->tensor().has_region() || wire->tensor().has_device()) &&
                    StridesOf(tensor.output.desc) == StridesOf(tensor.input.desc);
  PHASOR_ASSIGN_OR_RETURN(const auto place, payload.PlaceOutput(tensor.output, same, path));
  if (!place.has_value()) return absl::OkStatus();
  *wire->mutable_destination() =
      ToWire(TensorDesc{tensor.output.desc.dtype, tensor.output.desc.shape, {}});
  if (same) *wire->mutable_destination()->mutable_strides() = wire->tensor().strides();
  SetPlace(place, wire->mutable_destination());
  return absl::OkStatus();
}

// Adds a cache: its place, or its bytes in the message.
absl::Status AddCache(const MutableTensorView& cache, Payload& payload, v1::TensorSpec* wire) {
  TensorDesc desc = cache.desc;
  PHASOR_ASSIGN_OR_RETURN(const auto place, payload.PlaceOutput(cache, true, "cache"));
  if (!place.has_value()) {
    LeaseClient* const leases = std::exchange(payload.leases, nullptr);  // always send the bytes
    absl::Status added = payload.AddTensor(cache, desc).status();
    payload.leases = leases;
    PHASOR_RETURN_IF_ERROR(added);
  } else if (IsDense(desc)) {
    desc.strides.clear();
  }
  *wire = ToWire(desc);
  SetPlace(place, wire);
  return absl::OkStatus();
}

absl::Status AddPages(const RopeCall& call, PagedCache& cache, Payload& payload,
                      v1::PagedCacheWrite* wire) {
  const PagedWrite& paged = *call.paged;
  PHASOR_ASSIGN_OR_RETURN(const auto values, payload.AddTensor(paged.values.input, cache.values));
  *wire = ToWire(cache);
  SetPlace(values, wire->mutable_values());
  PHASOR_RETURN_IF_ERROR(AddCache(call.tensors[static_cast<size_t>(paged.key_index)].output,
                                  payload, wire->mutable_key_cache()));
  PHASOR_RETURN_IF_ERROR(AddCache(paged.values.output, payload, wire->mutable_value_cache()));
  PHASOR_ASSIGN_OR_RETURN(const auto slots,
                          payload.AddTensor(paged.slot_mapping, cache.slot_mapping));
  SetPlace(slots, wire->mutable_slot_mapping());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::EncodeItem> MakeItem(const EncodeCall& call, std::string_view path,
                                        Payload& payload) {
  PHASOR_ASSIGN_OR_RETURN(EncodeRequest request, ToRequest(call, path, payload.connection));
  payload.AddPositions(call.positions);
  std::optional<SharedPlace> add_to;
  if (call.add_to.has_value()) {
    PHASOR_ASSIGN_OR_RETURN(add_to, payload.AddTensor(*call.add_to, *request.add_to));
  }
  v1::EncodeItem item = ToWire(request);
  if (add_to.has_value()) SetPlace(add_to, item.mutable_add_to());
  if (!call.output.has_value()) return item;
  const MutableTensorView& output = *call.output;
  const std::string output_path = StrCat(path, ".output");
  if (output.desc.shape.size() < 2) {  // may take rows of any width, which the server cannot know
    if (output.device.memory == nullptr) return item;
    return InvalidAt(
        StrCat(output_path, ".shape"),
        StrCat(output.desc.shape.size(), " dimensions; must be those of the result on a GPU"));
  }
  PHASOR_ASSIGN_OR_RETURN(const auto place, payload.PlaceOutput(output, false, output_path));
  if (!place.has_value()) return item;
  *item.mutable_destination() = ToWire(TensorDesc{output.desc.dtype, output.desc.shape, {}});
  SetPlace(place, item.mutable_destination());
  return item;
}

absl::StatusOr<v1::ApplyRoPEItem> MakeItem(const RopeCall& call, std::string_view path,
                                           Payload& payload) {
  PHASOR_ASSIGN_OR_RETURN(RopeRequest request, ToRequest(call, path, payload.connection));
  payload.AddPositions(call.positions);
  std::vector<std::optional<SharedPlace>> places;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    PHASOR_ASSIGN_OR_RETURN(places.emplace_back(),
                            payload.AddTensor(call.tensors[i].input, request.tensors[i]));
  }
  if (call.from_positions.has_value()) payload.AddPositions(*call.from_positions);
  v1::ApplyRoPEItem item = ToWire(request);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    v1::RopeTensor* const wire = item.mutable_tensors(static_cast<int>(i));
    SetPlace(places[i], wire->mutable_tensor());
    if (call.paged.has_value() && call.paged->key_index == static_cast<int64_t>(i)) continue;
    PHASOR_RETURN_IF_ERROR(
        SetDestination(call.tensors[i], StrCat(path, ".tensors[", i, "].output"), payload, wire));
  }
  if (call.paged.has_value()) {
    PHASOR_RETURN_IF_ERROR(
        AddPages(call, *request.paged_cache, payload, item.mutable_paged_cache()));
  }
  return item;
}

absl::StatusOr<v1::AttentionBiasItem> MakeItem(const BiasCall& call, std::string_view path,
                                               Payload& payload) {
  payload.leases = nullptr;  // biases do not use regions
  PHASOR_ASSIGN_OR_RETURN(BiasRequest request, ToRequest(call, path));
  if (call.query_positions.has_value()) payload.AddPositions(*call.query_positions);
  if (call.key_positions.has_value()) payload.AddPositions(*call.key_positions);
  if (call.add_to.has_value()) {
    PHASOR_RETURN_IF_ERROR(payload.AddTensor(*call.add_to, *request.add_to).status());
  }
  if (call.table_values.has_value()) {
    PHASOR_RETURN_IF_ERROR(payload.AddTensor(*call.table_values, *request.table_values).status());
  }
  return ToWire(request);
}

absl::StatusOr<v1::MoveKeysItem> MakeItem(const MoveCall& call, std::string_view path,
                                          Payload& payload) {
  PHASOR_ASSIGN_OR_RETURN(const MoveRequest request, ToRequest(call, path, payload.connection));
  v1::MoveKeysItem item = ToWire(request);
  for (size_t i = 0; i < call.pools.size(); ++i) {
    const std::optional<SharedPlace> place = payload.AddPool(call.pools[i]);
    if (!place.has_value()) continue;
    SetPlace(place, item.mutable_pools(static_cast<int>(i)));
    if (call.mode != MoveMode::kCompare) ++payload.destinations;
  }
  return item;
}

}  // namespace phasor::client_internal
