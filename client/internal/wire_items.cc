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

absl::Status Payload::AddTensor(const TensorView& tensor, TensorDesc& desc) {
  const int64_t bytes = ElementCount(tensor.desc) * SizeOf(tensor.desc.dtype);
  desc.strides.clear();
  if (IsDense(tensor.desc)) {
    raw.emplace_back(tensor.data, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  PHASOR_ASSIGN_OR_RETURN(Bytes dense, Bytes::Allocate(bytes));
  CopyToDense(tensor, dense.data());
  raw.emplace_back(dense.data(), static_cast<size_t>(bytes));
  gathered.push_back(std::move(dense));
  return absl::OkStatus();
}

absl::StatusOr<v1::EncodeItem> MakeItem(const EncodeCall& call, std::string_view path,
                                        Payload& payload) {
  PHASOR_ASSIGN_OR_RETURN(EncodeRequest request, ToRequest(call, path));
  payload.AddPositions(call.positions);
  if (call.add_to.has_value()) {
    PHASOR_RETURN_IF_ERROR(payload.AddTensor(*call.add_to, *request.add_to));
  }
  return ToWire(request);
}

absl::StatusOr<v1::ApplyRoPEItem> MakeItem(const RopeCall& call, std::string_view path,
                                           Payload& payload) {
  PHASOR_ASSIGN_OR_RETURN(RopeRequest request, ToRequest(call, path));
  payload.AddPositions(call.positions);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    PHASOR_RETURN_IF_ERROR(payload.AddTensor(call.tensors[i].input, request.tensors[i]));
  }
  if (call.from_positions.has_value()) payload.AddPositions(*call.from_positions);
  return ToWire(request);
}

absl::StatusOr<v1::AttentionBiasItem> MakeItem(const BiasCall& call, std::string_view path,
                                               Payload& payload) {
  PHASOR_ASSIGN_OR_RETURN(BiasRequest request, ToRequest(call, path));
  if (call.query_positions.has_value()) payload.AddPositions(*call.query_positions);
  if (call.key_positions.has_value()) payload.AddPositions(*call.key_positions);
  if (call.add_to.has_value()) {
    PHASOR_RETURN_IF_ERROR(payload.AddTensor(*call.add_to, *request.add_to));
  }
  if (call.table_values.has_value()) {
    PHASOR_RETURN_IF_ERROR(payload.AddTensor(*call.table_values, *request.table_values));
  }
  return ToWire(request);
}

}  // namespace phasor::client_internal
