// SPDX-License-Identifier: Apache-2.0
// Converts the messages of AttentionBias and of tables to values of the kernels, and back.
#include "proto/convert_bias.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "proto/convert.h"
#include "proto/enums.h"

namespace phasor {
namespace {

// 0 on the wire means not set; no family accepts 0.
std::optional<int64_t> UnlessZero(int64_t value) {
  return value == 0 ? std::nullopt : std::optional<int64_t>(value);
}

absl::StatusOr<BiasSpec> BiasSpecFromWire(const v1::AttentionBiasItem& wire,
                                          const std::string& path) {
  BiasSpec spec;
  spec.preset = wire.preset();
  PHASOR_ASSIGN_OR_RETURN(spec.family,
                          OptionalEnumFromWire<BiasFamily>(wire.family(), path, ".family"));
  spec.num_buckets = UnlessZero(wire.num_buckets());
  spec.max_distance = UnlessZero(wire.max_distance());
  if (wire.has_bidirectional()) spec.bidirectional = wire.bidirectional();
  spec.window.assign(wire.window().begin(), wire.window().end());
  return spec;
}

void WriteSpec(const BiasSpec& spec, v1::AttentionBiasItem* wire) {
  wire->set_preset(spec.preset);
  if (spec.family) wire->set_family(ToWire(*spec.family));
  wire->set_num_buckets(spec.num_buckets.value_or(0));
  wire->set_max_distance(spec.max_distance.value_or(0));
  if (spec.bidirectional) wire->set_bidirectional(*spec.bidirectional);
  wire->mutable_window()->Add(spec.window.begin(), spec.window.end());
}

absl::Status ReadPositions(const v1::AttentionBiasItem& wire, const std::string& path,
                           BiasRequest* request) {
  if (wire.has_query_positions()) {
    PHASOR_ASSIGN_OR_RETURN(
        request->query_positions,
        PositionsFromWire(wire.query_positions(), absl::StrCat(path, ".query_positions")));
  }
  if (wire.has_key_positions()) {
    PHASOR_ASSIGN_OR_RETURN(
        request->key_positions,
        PositionsFromWire(wire.key_positions(), absl::StrCat(path, ".key_positions")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BiasRequest> BiasRequestFromWire(const v1::AttentionBiasItem& wire,
                                                const std::string& path) {
  BiasRequest request;
  PHASOR_ASSIGN_OR_RETURN(request.spec, BiasSpecFromWire(wire, path));
  request.heads = wire.heads();
  PHASOR_RETURN_IF_ERROR(ReadPositions(wire, path, &request));
  request.table = wire.table();
  if (wire.has_table_values()) {
    PHASOR_ASSIGN_OR_RETURN(
        request.table_values,
        TensorDescFromWire(wire.table_values(), absl::StrCat(path, ".table_values")));
  }
  PHASOR_ASSIGN_OR_RETURN(request.output_dtype,
                          EnumFromWire<Dtype>(wire.output_dtype(), path, ".output_dtype"));
  if (wire.has_add_to()) {
    PHASOR_ASSIGN_OR_RETURN(request.add_to,
                            TensorDescFromWire(wire.add_to(), absl::StrCat(path, ".add_to")));
  }
  request.pins = PinsFromWire(wire.pins());
  return request;
}

v1::AttentionBiasItem ToWire(const BiasRequest& request) {
  v1::AttentionBiasItem wire;
  WriteSpec(request.spec, &wire);
  wire.set_heads(request.heads);
  if (request.query_positions) *wire.mutable_query_positions() = ToWire(*request.query_positions);
  if (request.key_positions) *wire.mutable_key_positions() = ToWire(*request.key_positions);
  wire.set_table(request.table);
  if (request.table_values) *wire.mutable_table_values() = ToWire(*request.table_values);
  wire.set_output_dtype(ToWire(request.output_dtype));
  if (request.add_to) *wire.mutable_add_to() = ToWire(*request.add_to);
  if (!(request.pins == Pins{})) *wire.mutable_pins() = ToWire(request.pins);
  return wire;
}

v1::BiasPreset ToWire(const BiasPreset& preset) {
  v1::BiasPreset wire;
  wire.set_name(preset.name);
  wire.set_summary(preset.summary);
  wire.set_source(preset.source);
  WriteSpec(preset.spec, wire.mutable_item());
  return wire;
}

int CountInlineTensors(const v1::AttentionBiasItem& item) {
  return CountInline(item.query_positions()) + CountInline(item.key_positions()) +
         (item.has_add_to() ? CountInline(item.add_to()) : 0) +
         (item.has_table_values() ? CountInline(item.table_values()) : 0);
}

v1::Table ToWire(const Table& table) {
  v1::Table wire;
  wire.set_name(table.name);
  *wire.mutable_tensor() = ToWire(TensorDesc{table.dtype, {table.rows, table.columns}, {}});
  wire.set_sha256(table.sha256);
  return wire;
}

}  // namespace phasor
