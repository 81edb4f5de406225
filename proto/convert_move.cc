// SPDX-License-Identifier: Apache-2.0
// Converts the messages of MoveKeys to requests of the kernels, and back.
#include "proto/convert_move.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "proto/convert.h"
#include "proto/enums.h"

namespace phasor {
namespace {

using Numbers = google::protobuf::RepeatedField<int64_t>;

std::vector<int64_t> NumbersFromWire(const Numbers& wire) { return {wire.begin(), wire.end()}; }

void Write(const std::vector<int64_t>& numbers, Numbers* wire) {
  wire->Add(numbers.begin(), numbers.end());
}

KeyScales ScalesFromWire(const v1::KeyScales& wire) {
  return {wire.offset(), wire.page_bytes(), wire.slot_bytes(), wire.head_bytes()};
}

v1::KeyScales ScalesToWire(const KeyScales& from) {
  v1::KeyScales out;
  out.set_offset(from.offset);
  out.set_page_bytes(from.page_bytes);
  out.set_slot_bytes(from.slot_bytes);
  out.set_head_bytes(from.head_bytes);
  return out;
}

absl::StatusOr<KeyLayout> KeyLayoutFromWire(const v1::KeyLayout& wire, const std::string& path) {
  KeyLayout out;
  out.name = wire.name();
  PHASOR_ASSIGN_OR_RETURN(out.code, EnumFromWire<KeyCode>(wire.code(), path, ".code"));
  out.pages = wire.pages();
  if (wire.has_page_size()) out.page_size = wire.page_size();
  out.heads = wire.heads();
  out.head_dim = wire.head_dim();
  if (wire.has_layers()) out.layers = wire.layers();
  if (wire.has_page_bytes()) out.page_bytes = wire.page_bytes();
  if (wire.has_slot_bytes()) out.slot_bytes = wire.slot_bytes();
  if (wire.has_head_bytes()) out.head_bytes = wire.head_bytes();
  if (wire.has_lane_bytes()) out.lane_bytes = wire.lane_bytes();
  if (wire.has_group_lanes()) out.group_lanes = wire.group_lanes();
  if (wire.has_group_bytes()) out.group_bytes = wire.group_bytes();
  if (wire.has_lanes_offset()) out.lanes_offset = wire.lanes_offset();
  if (wire.has_row_bytes()) out.row_bytes = wire.row_bytes();
  if (wire.has_scale()) out.scale = wire.scale();
  if (wire.has_scales()) out.scales = ScalesFromWire(wire.scales());
  out.hadamard = wire.hadamard();
  return out;
}

v1::KeyLayout KeyLayoutToWire(const KeyLayout& from) {
  v1::KeyLayout out;
  out.set_name(from.name);
  out.set_code(ToWire(from.code));
  out.set_pages(from.pages);
  out.set_page_size(from.page_size);
  out.set_heads(from.heads);
  out.set_head_dim(from.head_dim);
  out.set_layers(from.layers);
  if (from.page_bytes.has_value()) out.set_page_bytes(*from.page_bytes);
  if (from.slot_bytes.has_value()) out.set_slot_bytes(*from.slot_bytes);
  if (from.head_bytes.has_value()) out.set_head_bytes(*from.head_bytes);
  if (from.lane_bytes.has_value()) out.set_lane_bytes(*from.lane_bytes);
  if (from.group_lanes.has_value()) out.set_group_lanes(*from.group_lanes);
  if (from.group_bytes.has_value()) out.set_group_bytes(*from.group_bytes);
  if (from.lanes_offset.has_value()) out.set_lanes_offset(*from.lanes_offset);
  if (from.row_bytes.has_value()) out.set_row_bytes(*from.row_bytes);
  if (from.scale.has_value()) out.set_scale(*from.scale);
  if (from.scales.has_value()) *out.mutable_scales() = ScalesToWire(*from.scales);
  out.set_hadamard(from.hadamard);
  return out;
}

absl::StatusOr<KeySpec> KeySpecFromWire(const v1::KeySpec& wire, const std::string& path) {
  KeySpec out;
  if (!wire.has_spec()) return Invalid(path, ".spec: not set; must be given");
  PHASOR_ASSIGN_OR_RETURN(out.spec, SpecFromWire(wire.spec(), absl::StrCat(path, ".spec")));
  if (wire.has_from_spec()) {
    PHASOR_ASSIGN_OR_RETURN(out.from_spec,
                            SpecFromWire(wire.from_spec(), absl::StrCat(path, ".from_spec")));
  }
  out.fingerprint = wire.fingerprint();
  out.from_fingerprint = wire.from_fingerprint();
  return out;
}

v1::KeySpec KeySpecToWire(const KeySpec& from) {
  v1::KeySpec out;
  *out.mutable_spec() = ToWire(from.spec);
  if (from.from_spec.has_value()) *out.mutable_from_spec() = ToWire(*from.from_spec);
  out.set_fingerprint(from.fingerprint);
  out.set_from_fingerprint(from.from_fingerprint);
  return out;
}

KeyPlace PlaceFromWire(const v1::KeyPlace& wire) { return {wire.pool(), wire.offset_bytes()}; }

v1::KeyPlace PlaceToWire(const KeyPlace& from) {
  v1::KeyPlace out;
  out.set_pool(from.pool);
  out.set_offset_bytes(from.offset_bytes);
  return out;
}

absl::StatusOr<KeyLayer> KeyLayerFromWire(const v1::KeyLayer& wire, const std::string& path) {
  KeyLayer out;
  out.layout = wire.layout();
  if (wire.has_spec()) out.spec = wire.spec();
  out.group = wire.group();
  if (!wire.has_place()) return Invalid(path, ".place: not set; must be given");
  out.place = PlaceFromWire(wire.place());
  out.layer = wire.layer();
  if (wire.has_copy_values()) out.copy_values = wire.copy_values();
  if (wire.has_to_place()) out.to_place = PlaceFromWire(wire.to_place());
  if (wire.has_to_layout()) out.to_layout = wire.to_layout();
  if (wire.has_model_layer()) out.model_layer = wire.model_layer();
  return out;
}

v1::KeyLayer KeyLayerToWire(const KeyLayer& from) {
  v1::KeyLayer out;
  out.set_layout(from.layout);
  if (from.spec.has_value()) out.set_spec(*from.spec);
  out.set_group(from.group);
  *out.mutable_place() = PlaceToWire(from.place);
  out.set_layer(from.layer);
  out.set_copy_values(from.copy_values);
  if (from.to_place.has_value()) *out.mutable_to_place() = PlaceToWire(*from.to_place);
  if (from.to_layout.has_value()) out.set_to_layout(*from.to_layout);
  if (from.model_layer.has_value()) out.set_model_layer(*from.model_layer);
  return out;
}

KeyRun RunFromWire(const v1::KeyRun& wire) {
  KeyRun out;
  out.block_table = NumbersFromWire(wire.block_table());
  out.first = wire.first();
  out.count = wire.count();
  out.from = wire.from();
  out.to = wire.to();
  out.to_block_table = NumbersFromWire(wire.to_block_table());
  if (wire.has_to_first()) out.to_first = wire.to_first();
  return out;
}

v1::KeyRun RunToWire(const KeyRun& from) {
  v1::KeyRun out;
  Write(from.block_table, out.mutable_block_table());
  out.set_first(from.first);
  out.set_count(from.count);
  out.set_from(from.from);
  out.set_to(from.to);
  Write(from.to_block_table, out.mutable_to_block_table());
  if (from.to_first.has_value()) out.set_to_first(*from.to_first);
  return out;
}

KeyGroup GroupFromWire(const v1::KeyGroup& wire) {
  KeyGroup out;
  for (const v1::KeyRun& run : wire.runs()) out.runs.push_back(RunFromWire(run));
  out.slots = {NumbersFromWire(wire.slots().slots()), NumbersFromWire(wire.slots().to_slots()),
               NumbersFromWire(wire.slots().from_positions()),
               NumbersFromWire(wire.slots().positions())};
  if (wire.has_slot_positions()) out.slot_positions = PlaceFromWire(wire.slot_positions());
  return out;
}

v1::KeyGroup GroupToWire(const KeyGroup& from) {
  v1::KeyGroup out;
  for (const KeyRun& run : from.runs) *out.add_runs() = RunToWire(run);
  Write(from.slots.slots, out.mutable_slots()->mutable_slots());
  Write(from.slots.to_slots, out.mutable_slots()->mutable_to_slots());
  Write(from.slots.from_positions, out.mutable_slots()->mutable_from_positions());
  Write(from.slots.positions, out.mutable_slots()->mutable_positions());
  if (from.slot_positions.has_value()) {
    *out.mutable_slot_positions() = PlaceToWire(*from.slot_positions);
  }
  return out;
}

absl::Status ReadPools(const v1::MoveKeysItem& wire, const std::string& path,
                       MoveRequest* request) {
  for (int i = 0; i < wire.pools_size(); ++i) {
    if (wire.pools(i).has_device() != wire.pools(0).has_device()) {
      const bool here = wire.pools(i).has_device();
      return Invalid(path, ".pools[", i, "]: ", here ? "device" : "host", " memory, pools[0] is ",
                     here ? "host" : "device",
                     " memory; must be alike, because a call moves keys where they lie");
    }
    request->pools.push_back(wire.pools(i).size_bytes());
  }
  return absl::OkStatus();
}

// Converts each entry of a repeated field with `from_wire`, which may fail.
template <typename Wire, typename T>
absl::Status ReadEach(const google::protobuf::RepeatedPtrField<Wire>& wire, const std::string& path,
                      absl::StatusOr<T> (*from_wire)(const Wire&, const std::string&),
                      std::vector<T>* out) {
  for (int i = 0; i < wire.size(); ++i) {
    PHASOR_ASSIGN_OR_RETURN(T value, from_wire(wire[i], absl::StrCat(path, "[", i, "]")));
    out->push_back(std::move(value));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MoveRequest> MoveRequestFromWire(const v1::MoveKeysItem& wire,
                                                const std::string& path) {
  MoveRequest request;
  PHASOR_RETURN_IF_ERROR(ReadPools(wire, path, &request));
  PHASOR_RETURN_IF_ERROR(ReadEach(wire.layouts(), absl::StrCat(path, ".layouts"),
                                  &KeyLayoutFromWire, &request.layouts));
  PHASOR_RETURN_IF_ERROR(
      ReadEach(wire.specs(), absl::StrCat(path, ".specs"), &KeySpecFromWire, &request.specs));
  PHASOR_RETURN_IF_ERROR(
      ReadEach(wire.layers(), absl::StrCat(path, ".layers"), &KeyLayerFromWire, &request.layers));
  for (const v1::KeyGroup& group : wire.groups()) request.groups.push_back(GroupFromWire(group));
  PHASOR_ASSIGN_OR_RETURN(const std::optional<MoveMode> mode,
                          OptionalEnumFromWire<MoveMode>(wire.mode(), path, ".mode"));
  request.mode = mode.value_or(MoveMode::kCopyOnWrite);
  if (wire.has_tolerance()) request.tolerance = wire.tolerance();
  request.pins = PinsFromWire(wire.pins());
  return request;
}

v1::MoveKeysItem ToWire(const MoveRequest& request) {
  v1::MoveKeysItem wire;
  for (const int64_t bytes : request.pools) wire.add_pools()->set_size_bytes(bytes);
  for (const KeyLayout& layout : request.layouts) *wire.add_layouts() = KeyLayoutToWire(layout);
  for (const KeySpec& spec : request.specs) *wire.add_specs() = KeySpecToWire(spec);
  for (const KeyLayer& layer : request.layers) *wire.add_layers() = KeyLayerToWire(layer);
  for (const KeyGroup& group : request.groups) *wire.add_groups() = GroupToWire(group);
  wire.set_mode(ToWire(request.mode));
  if (request.tolerance.has_value()) wire.set_tolerance(*request.tolerance);
  if (!(request.pins == Pins{})) *wire.mutable_pins() = ToWire(request.pins);
  return wire;
}

KeyDifference DifferenceFromWire(const v1::KeyDifference& wire) {
  return {.max_abs = wire.max_abs(),
          .rms = wire.rms(),
          .reference_rms = wire.reference_rms(),
          .bad_rows = wire.bad_rows(),
          .first_bad_token = wire.has_first_bad_token() ? wire.first_bad_token() : -1,
          .first_bad_slot = wire.has_first_bad_slot() ? wire.first_bad_slot() : -1,
          .first_bad_head = wire.has_first_bad_head() ? wire.first_bad_head() : -1};
}

v1::KeyDifference ToWire(const KeyDifference& difference) {
  v1::KeyDifference wire;
  wire.set_max_abs(difference.max_abs);
  wire.set_rms(difference.rms);
  wire.set_reference_rms(difference.reference_rms);
  wire.set_relative_rms(difference.relative_rms());
  wire.set_bad_rows(difference.bad_rows);
  if (difference.first_bad_token < 0) return wire;
  wire.set_first_bad_token(difference.first_bad_token);
  wire.set_first_bad_slot(difference.first_bad_slot);
  wire.set_first_bad_head(difference.first_bad_head);
  return wire;
}

int CountInlineTensors(const v1::MoveKeysItem& item) {
  int count = 0;
  for (const v1::KeyPool& pool : item.pools()) {
    count += pool.source_case() == v1::KeyPool::SOURCE_NOT_SET ? 1 : 0;
  }
  return count;
}

}  // namespace phasor
