// SPDX-License-Identifier: Apache-2.0
#include "client/internal/wire_items.h"

#include <utility>
#include <variant>

#include "client/internal/calls.h"
#include "kernels/status_macros.h"
#include "kernels/tensor_desc.h"
#include "proto/convert.h"
#include "proto/convert_bias.h"

namespace phasor::client_internal {

void Payload::AddPositions(const PositionList& positions) {
  if (std::holds_alternative<PositionTensor>(positions.value())) {
    raw.push_back(PositionBytes(positions));
  }
}

absl::StatusOr<std::optional<LeasedPlace>> Payload::AddTensor(const TensorView& tensor,
                                                              TensorDesc& desc) {
  if (leases != nullptr) {
    PHASOR_ASSIGN_OR_RETURN(const int64_t spanned, SpannedBytes(tensor.desc, "tensor"));
    if (auto place = leases->Find(tensor.data, spanned); place.has_value()) {
      if (IsDense(tensor.desc)) desc.strides.clear();
      return place;
    }
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

std::optional<LeasedPlace> Payload::PlaceOutput(const MutableTensorView& output, bool strided) {
  if (leases == nullptr || !(strided || IsDense(output.desc))) return std::nullopt;
  const absl::StatusOr<int64_t> spanned = SpannedBytes(output.desc, "output");
  if (!spanned.ok()) return std::nullopt;
  std::optional<LeasedPlace> place = leases->Find(output.data, *spanned);
  // The server writes whole elements.
  if (place.has_value() && place->offset % SizeOf(output.desc.dtype) != 0) return std::nullopt;
  if (place.has_value()) ++destinations;
  return place;
}

namespace {

void SetRegion(const std::optional<LeasedPlace>& place, v1::TensorSpec* tensor) {
  if (!place.has_value()) return;
  tensor->mutable_region()->set_region(place->token);
  tensor->mutable_region()->set_offset_bytes(place->offset);
}

// A rotated tensor's output, if the server is to write it: with the input's strides, or dense.
void SetDestination(const RopeTensor& tensor, Payload& payload, v1::RopeTensor* wire) {
  // A server that reads the input from the message does not know its strides.
  const bool same =
      wire->tensor().has_region() && StridesOf(tensor.output.desc) == StridesOf(tensor.input.desc);
  const auto place = payload.PlaceOutput(tensor.output, same);
  if (!place.has_value()) return;
  *wire->mutable_destination() =
      ToWire(TensorDesc{tensor.output.desc.dtype, tensor.output.desc.shape, {}});
  if (same) *wire->mutable_destination()->mutable_strides() = wire->tensor().strides();
  SetRegion(place, wire->mutable_destination());
}

// A cache: where it is, or, for the message, what it holds.
absl::Status AddCache(const MutableTensorView& cache, Payload& payload, v1::TensorSpec* wire) {
  TensorDesc desc = cache.desc;
  const auto place = payload.PlaceOutput(cache, true);
  if (!place.has_value()) {
    LeaseClient* const leases = std::exchange(payload.leases, nullptr);  // sent, wherever it is
    absl::Status added = payload.AddTensor(cache, desc).status();
    payload.leases = leases;
    PHASOR_RETURN_IF_ERROR(added);
  } else if (IsDense(desc)) {
    desc.strides.clear();
  }
  *wire = ToWire(desc);
  SetRegion(place, wire);
  return absl::OkStatus();
}

absl::Status AddPages(const RopeCall& call, PagedCache& cache, Payload& payload,
                      v1::PagedCacheWrite* wire) {
  const PagedWrite& paged = *call.paged;
  PHASOR_ASSIGN_OR_RETURN(const auto values, payload.AddTensor(paged.values.input, cache.values));
  *wire = ToWire(cache);
  SetRegion(values, wire->mutable_values());
  PHASOR_RETURN_IF_ERROR(AddCache(call.tensors[static_cast<size_t>(paged.key_index)].output,
                                  payload, wire->mutable_key_cache()));
  PHASOR_RETURN_IF_ERROR(AddCache(paged.values.output, payload, wire->mutable_value_cache()));
  PHASOR_ASSIGN_OR_RETURN(const auto slots,
                          payload.AddTensor(paged.slot_mapping, cache.slot_mapping));
  SetRegion(slots, wire->mutable_slot_mapping());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::EncodeItem> MakeItem(const EncodeCall& call, std::string_view path,
                                        Payload& payload) {
  PHASOR_ASSIGN_OR_RETURN(EncodeRequest request, ToRequest(call, path));
  payload.AddPositions(call.positions);
  std::optional<LeasedPlace> add_to;
  if (call.add_to.has_value()) {
    PHASOR_ASSIGN_OR_RETURN(add_to, payload.AddTensor(*call.add_to, *request.add_to));
  }
  v1::EncodeItem item = ToWire(request);
  if (add_to.has_value()) SetRegion(add_to, item.mutable_add_to());
  // An output of one dimension takes rows of any width, which the server cannot know.
  if (call.output.has_value() && call.output->desc.shape.size() > 1) {
    if (const auto place = payload.PlaceOutput(*call.output, false); place.has_value()) {
      *item.mutable_destination() =
          ToWire(TensorDesc{call.output->desc.dtype, call.output->desc.shape, {}});
      SetRegion(place, item.mutable_destination());
    }
  }
  return item;
}

absl::StatusOr<v1::ApplyRoPEItem> MakeItem(const RopeCall& call, std::string_view path,
                                           Payload& payload) {
  PHASOR_ASSIGN_OR_RETURN(RopeRequest request, ToRequest(call, path));
  payload.AddPositions(call.positions);
  std::vector<std::optional<LeasedPlace>> places;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    PHASOR_ASSIGN_OR_RETURN(places.emplace_back(),
                            payload.AddTensor(call.tensors[i].input, request.tensors[i]));
  }
  if (call.from_positions.has_value()) payload.AddPositions(*call.from_positions);
  v1::ApplyRoPEItem item = ToWire(request);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    v1::RopeTensor* const wire = item.mutable_tensors(static_cast<int>(i));
    SetRegion(places[i], wire->mutable_tensor());
    const bool paged = call.paged.has_value() && call.paged->key_index == static_cast<int64_t>(i);
    if (!paged) SetDestination(call.tensors[i], payload, wire);
  }
  if (call.paged.has_value()) {
    PHASOR_RETURN_IF_ERROR(
        AddPages(call, *request.paged_cache, payload, item.mutable_paged_cache()));
  }
  return item;
}

absl::StatusOr<v1::AttentionBiasItem> MakeItem(const BiasCall& call, std::string_view path,
                                               Payload& payload) {
  payload.leases = nullptr;  // biases take no regions
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

}  // namespace phasor::client_internal
