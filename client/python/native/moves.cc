// SPDX-License-Identifier: Apache-2.0
// Reads tuples of fields in the order of the structs that they fill.
#include "client/python/native/moves.h"

#include <nanobind/ndarray.h>

#include <optional>
#include <vector>

#include "client/python/native/arrays.h"
#include "client/python/native/calls.h"
#include "kernels/base/text.h"

namespace phasor::python {
namespace {

template <typename T>
void Read(nb::handle value, T& field) {
  field = nb::cast<T>(value);
}

void Read(nb::handle value, Spec& spec) { spec = nb::cast<const Spec&>(value); }
void Read(nb::handle value, KeyCode& code) { code = static_cast<KeyCode>(nb::cast<int>(value)); }
void Read(nb::handle value, MoveMode& mode) { mode = static_cast<MoveMode>(nb::cast<int>(value)); }
void Read(nb::handle value, std::vector<int64_t>& numbers) {
  const auto array = nb::cast<nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig>>(value);
  numbers.assign(array.data(), array.data() + array.size());
}

void Read(nb::handle fields, KeyScales& scales);
void Read(nb::handle fields, KeyPlace& place);
void Read(nb::handle fields, KeyLayout& layout);
void Read(nb::handle fields, KeySpec& spec);
void Read(nb::handle fields, KeyLayer& layer);
void Read(nb::handle fields, KeyRun& run);
void Read(nb::handle fields, KeySlots& slots);
void Read(nb::handle fields, KeyGroup& group);

template <typename T>
void Read(nb::handle value, std::optional<T>& field) {
  if (!value.is_none()) Read(value, field.emplace());
}

template <typename T>
void Read(nb::handle list, std::vector<T>& entries) {
  for (nb::handle entry : list) Read(entry, entries.emplace_back());
}

template <typename... T>
void ReadAll(nb::handle tuple, T&... fields) {
  size_t i = 0;
  (Read(nb::object(tuple[i++]), fields), ...);
}

void Read(nb::handle fields, KeyScales& scales) {
  ReadAll(fields, scales.offset, scales.page_bytes, scales.slot_bytes, scales.head_bytes);
}

void Read(nb::handle fields, KeyPlace& place) { ReadAll(fields, place.pool, place.offset_bytes); }

void Read(nb::handle fields, KeyLayout& layout) {
  ReadAll(fields, layout.name, layout.code, layout.pages, layout.page_size, layout.heads,
          layout.head_dim, layout.layers, layout.page_bytes, layout.slot_bytes, layout.head_bytes,
          layout.lane_bytes, layout.group_lanes, layout.group_bytes, layout.lanes_offset,
          layout.row_bytes, layout.scale, layout.scales, layout.hadamard);
}

void Read(nb::handle fields, KeySpec& spec) {
  ReadAll(fields, spec.spec, spec.from_spec, spec.fingerprint, spec.from_fingerprint);
}

void Read(nb::handle fields, KeyLayer& layer) {
  ReadAll(fields, layer.layout, layer.spec, layer.group, layer.place, layer.layer,
          layer.copy_values, layer.to_place, layer.to_layout, layer.model_layer);
}

void Read(nb::handle fields, KeyRun& run) {
  ReadAll(fields, run.block_table, run.first, run.count, run.from, run.to, run.to_block_table,
          run.to_first);
}

void Read(nb::handle fields, KeySlots& slots) {
  ReadAll(fields, slots.slots, slots.to_slots, slots.from_positions, slots.positions);
}

void Read(nb::handle fields, KeyGroup& group) {
  ReadAll(fields, group.runs, group.slots, group.slot_positions);
}

nb::dict ToDict(const KeyDifference& difference) {
  nb::dict dict;
  dict["relative_rms"] = difference.relative_rms();
  dict["rms"] = difference.rms;
  dict["reference_rms"] = difference.reference_rms;
  dict["max_abs"] = difference.max_abs;
  dict["bad_rows"] = difference.bad_rows;
  const auto index = [](int64_t value) { return value < 0 ? nb::none() : nb::cast(value); };
  dict["first_bad_token"] = index(difference.first_bad_token);
  dict["first_bad_slot"] = index(difference.first_bad_slot);
  dict["first_bad_head"] = index(difference.first_bad_head);
  return dict;
}

}  // namespace

MoveCall ToMoveCall(nb::tuple arguments, Borrowed& borrowed) {
  MoveCall call;
  Read(arguments[1], call.layouts);
  Read(arguments[2], call.specs);
  Read(arguments[3], call.layers);
  Read(arguments[4], call.groups);
  Read(arguments[5], call.mode);
  Read(arguments[6], call.tolerance);
  call.pins = ToPins(arguments[7]);
  const Access access = call.mode == MoveMode::kCompare ? Access::kRead : Access::kWrite;
  for (nb::handle pool : arguments[kMovePools]) {
    const int number = static_cast<int>(call.pools.size());
    call.pools.push_back(ImportBytes(pool, {"pools", number}, access, borrowed));
  }
  return call;
}

nb::dict ToDict(const MoveResult& result) {
  nb::list fingerprints, differences;
  for (const MoveResult::SpecInfo& spec : result.specs) {
    fingerprints.append(nb::make_tuple(spec.fingerprint, spec.from_fingerprint));
  }
  for (const KeyDifference& difference : result.differences) {
    differences.append(ToDict(difference));
  }
  nb::dict dict;
  dict["tokens"] = result.tokens;
  dict["moved_bytes"] = result.moved_bytes;
  dict["fingerprints"] = nb::tuple(fingerprints);
  dict["differences"] = nb::tuple(differences);
  return dict;
}

}  // namespace phasor::python
