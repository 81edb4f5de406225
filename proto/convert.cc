// SPDX-License-Identifier: Apache-2.0
// Converts the messages of Encode and ApplyRoPE to requests of the kernels, and back.
#include "proto/convert.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "proto/enums.h"

namespace phasor {
namespace {

absl::Status Missing(const std::string& path, const std::string& accepted) {
  return InvalidAt(path, "not set; must be ", accepted);
}

absl::Status NotImplemented(const std::string& path, const std::string& accepted) {
  return absl::UnimplementedError(
      absl::StrCat(path, ": not implemented in this version; must be ", accepted));
}

absl::StatusOr<AxisRange> AxisRangeFromWire(const v1::AxisRange& wire, const std::string& path) {
  switch (wire.kind_case()) {
    case v1::AxisRange::kInteger: {
      const v1::IntegerRange& range = wire.integer();
      return IntegerRange{range.start(), range.has_step() ? range.step() : 1, range.count()};
    }
    case v1::AxisRange::kReal:
      return RealRange{wire.real().start(), wire.real().step(), wire.real().count()};
    case v1::AxisRange::KIND_NOT_SET:
      break;
  }
  return Missing(path, "integer or real");
}

absl::StatusOr<PositionGrid> GridFromWire(const v1::PositionGrid& wire, const std::string& path) {
  if (wire.axes_size() > kMaxAxes) {
    return Invalid(path, ".axes: ", wire.axes_size(), " ranges; must be at most ", kMaxAxes);
  }
  PositionGrid grid;
  for (int i = 0; i < wire.axes_size(); ++i) {
    PHASOR_ASSIGN_OR_RETURN(AxisRange axis,
                            AxisRangeFromWire(wire.axes(i), absl::StrCat(path, ".axes[", i, "]")));
    grid.axes.push_back(axis);
  }
  return grid;
}

absl::StatusOr<PositionTensor> PositionTensorFromWire(const v1::TensorSpec& wire,
                                                      const std::string& path, Sources sources) {
  PHASOR_ASSIGN_OR_RETURN(TensorDesc tensor, TensorDescFromWire(wire, path, sources));
  if (wire.has_device()) {
    return NotImplemented(absl::StrCat(path, ".device"),
                          "unset: positions are read on the host; send them inline");
  }
  if (!tensor.strides.empty()) {
    return NotImplemented(absl::StrCat(path, ".strides"), "empty: positions are dense");
  }
  return PositionTensor{tensor.dtype, std::move(tensor.shape)};
}

RaggedPositions RaggedFromWire(const v1::RaggedPositions& wire) {
  RaggedPositions ragged;
  ragged.lengths.assign(wire.lengths().begin(), wire.lengths().end());
  ragged.offsets.assign(wire.offsets().begin(), wire.offsets().end());
  return ragged;
}

// Checks the fields that both kinds of item have.
template <typename Item>
absl::Status CheckCommonFields(const Item& wire, const std::string& path) {
  if (!wire.has_positions()) return Missing(absl::StrCat(path, ".positions"), "given");
  return absl::OkStatus();
}

template <typename Wire>
absl::Status CheckDestination(const Wire& wire, const std::string& path, Sources sources) {
  if (!wire.has_destination() || sources == Sources::kShared) return absl::OkStatus();
  return NotImplemented(absl::StrCat(path, ".destination"), "unset: results are inline");
}

// An item needs a spec or the name of a table.
absl::Status CheckSource(const v1::EncodeItem& wire, const std::string& path) {
  if (wire.has_spec() || !wire.table().empty()) return absl::OkStatus();
  return Missing(absl::StrCat(path, ".spec"), "given, or table");
}

absl::Status ReadTable(const v1::EncodeItem& wire, const std::string& path,
                       EncodeRequest* request) {
  request->table = wire.table();
  PHASOR_ASSIGN_OR_RETURN(
      const std::optional<OutOfRange> out_of_range,
      OptionalEnumFromWire<OutOfRange>(wire.out_of_range(), path, ".out_of_range"));
  request->out_of_range = out_of_range.value_or(OutOfRange::kStrict);
  return absl::OkStatus();
}

absl::Status ReadRopeTensor(const v1::RopeTensor& wire, const std::string& path, Sources sources,
                            RopeRequest* request) {
  if (!wire.has_tensor()) return Missing(absl::StrCat(path, ".tensor"), "given");
  PHASOR_ASSIGN_OR_RETURN(
      TensorDesc tensor, TensorDescFromWire(wire.tensor(), absl::StrCat(path, ".tensor"), sources));
  RopeOutput output;
  PHASOR_ASSIGN_OR_RETURN(output.dtype,
                          OptionalEnumFromWire<Dtype>(wire.output_dtype(), path, ".output_dtype"));
  if (wire.has_inv_scale()) output.inv_scale = wire.inv_scale();
  request->tensors.push_back(std::move(tensor));
  request->outputs.push_back(output);
  return CheckDestination(wire, path, sources);
}

absl::StatusOr<PagedCache> PagedCacheFromWire(const v1::PagedCacheWrite& wire,
                                              const std::string& path, Sources sources) {
  PagedCache cache;
  cache.key_index = wire.key_index();
  const auto read = [&](bool given, const v1::TensorSpec& tensor, const char* name,
                        TensorDesc* out) -> absl::Status {
    const std::string tensor_path = absl::StrCat(path, ".", name);
    if (!given) return Missing(tensor_path, "given");
    PHASOR_ASSIGN_OR_RETURN(*out, TensorDescFromWire(tensor, tensor_path, sources));
    return absl::OkStatus();
  };
  PHASOR_RETURN_IF_ERROR(read(wire.has_values(), wire.values(), "values", &cache.values));
  PHASOR_RETURN_IF_ERROR(
      read(wire.has_key_cache(), wire.key_cache(), "key_cache", &cache.key_cache));
  PHASOR_RETURN_IF_ERROR(
      read(wire.has_value_cache(), wire.value_cache(), "value_cache", &cache.value_cache));
  PHASOR_RETURN_IF_ERROR(
      read(wire.has_slot_mapping(), wire.slot_mapping(), "slot_mapping", &cache.slot_mapping));
  if (wire.slot_mapping().has_device()) {
    return NotImplemented(absl::StrCat(path, ".slot_mapping.device"),
                          "unset: slots are read on the host; send them inline");
  }
  for (const auto& [tensor, name] :
       {std::pair(&wire.key_cache(), "key_cache"), std::pair(&wire.value_cache(), "value_cache")}) {
    if (tensor->has_region() || tensor->has_device() || tensor->strides_size() == 0) continue;
    return Invalid(path, ".", name, ".strides: set inline; must be empty outside regions");
  }
  if (wire.has_value_inv_scale()) cache.value_inv_scale = wire.value_inv_scale();
  return cache;
}

// Reads where the results go: the outputs of tensors, and the paged cache.
absl::Status ReadOutputs(const v1::ApplyRoPEItem& wire, const std::string& path, Sources sources,
                         RopeRequest* request) {
  for (int i = 0; i < wire.tensors_size(); ++i) {
    PHASOR_RETURN_IF_ERROR(
        ReadRopeTensor(wire.tensors(i), absl::StrCat(path, ".tensors[", i, "]"), sources, request));
  }
  if (!wire.has_paged_cache()) return absl::OkStatus();
  const v1::PagedCacheWrite& cache = wire.paged_cache();
  const int key = cache.key_index();
  if (key >= 0 && key < wire.tensors_size() && wire.tensors(key).has_destination()) {
    return Invalid(path, ".tensors[", key,
                   "].destination: set; must be unset: keys go to paged_cache");
  }
  PHASOR_ASSIGN_OR_RETURN(request->paged_cache,
                          PagedCacheFromWire(cache, absl::StrCat(path, ".paged_cache"), sources));
  return absl::OkStatus();
}

// Reads the fields of DELTA, which are refused with any other direction.
absl::Status ReadDelta(const v1::ApplyRoPEItem& wire, const std::string& path, Sources sources,
                       RopeRequest* request) {
  if (wire.has_from_positions()) {
    PHASOR_ASSIGN_OR_RETURN(
        request->from_positions,
        PositionsFromWire(wire.from_positions(), absl::StrCat(path, ".from_positions"), sources));
  }
  if (wire.has_from_spec()) {
    PHASOR_ASSIGN_OR_RETURN(request->from_spec,
                            SpecFromWire(wire.from_spec(), absl::StrCat(path, ".from_spec")));
  }
  return absl::OkStatus();
}

struct AxisRangeWriter {
  v1::AxisRange* wire;

  void operator()(const IntegerRange& range) const {
    v1::IntegerRange* integer = wire->mutable_integer();
    integer->set_start(range.start);
    integer->set_step(range.step);
    integer->set_count(range.count);
  }
  void operator()(const RealRange& range) const {
    v1::RealRange* real = wire->mutable_real();
    real->set_start(range.start);
    real->set_step(range.step);
    real->set_count(range.count);
  }
};

struct PositionsWriter {
  v1::Positions* wire;

  void operator()(const AxisRange& range) const {
    std::visit(AxisRangeWriter{wire->mutable_range()}, range);
  }
  void operator()(const PositionGrid& grid) const {
    v1::PositionGrid* out = wire->mutable_grid();
    for (const AxisRange& axis : grid.axes) std::visit(AxisRangeWriter{out->add_axes()}, axis);
  }
  void operator()(const RaggedPositions& ragged) const {
    v1::RaggedPositions* out = wire->mutable_ragged();
    out->mutable_lengths()->Add(ragged.lengths.begin(), ragged.lengths.end());
    out->mutable_offsets()->Add(ragged.offsets.begin(), ragged.offsets.end());
  }
  void operator()(const PositionTensor& tensor) const {
    *wire->mutable_tensor() = ToWire(TensorDesc{tensor.dtype, tensor.shape, {}});
  }
};

template <typename Item>
void WritePins(const Pins& pins, Item* item) {
  if (!(pins == Pins{})) *item->mutable_pins() = ToWire(pins);
}

int CountPagedCache(const v1::PagedCacheWrite& cache) {
  return (cache.has_values() ? CountInline(cache.values()) : 0) +
         (cache.has_key_cache() ? CountInline(cache.key_cache()) : 0) +
         (cache.has_value_cache() ? CountInline(cache.value_cache()) : 0) +
         (cache.has_slot_mapping() ? CountInline(cache.slot_mapping()) : 0);
}

}  // namespace

Pins PinsFromWire(const v1::Pins& wire) {
  return Pins{wire.spec_fingerprint(), wire.numerics_version(), wire.backend()};
}

v1::Pins ToWire(const Pins& pins) {
  v1::Pins wire;
  wire.set_spec_fingerprint(pins.spec_fingerprint);
  wire.set_numerics_version(pins.numerics_version);
  wire.set_backend(pins.backend);
  return wire;
}

int CountInline(const v1::TensorSpec& tensor) {
  return tensor.source_case() == v1::TensorSpec::SOURCE_NOT_SET ? 1 : 0;
}

int CountInline(const v1::Positions& positions) {
  return positions.has_tensor() ? CountInline(positions.tensor()) : 0;
}

absl::StatusOr<TensorDesc> TensorDescFromWire(const v1::TensorSpec& wire, const std::string& path,
                                              Sources sources) {
  TensorDesc tensor;
  PHASOR_ASSIGN_OR_RETURN(tensor.dtype, EnumFromWire<Dtype>(wire.dtype(), path, ".dtype"));
  tensor.shape.assign(wire.shape().begin(), wire.shape().end());
  tensor.strides.assign(wire.strides().begin(), wire.strides().end());
  switch (wire.source_case()) {
    case v1::TensorSpec::kRegion:
      if (sources == Sources::kShared) break;
      return NotImplemented(absl::StrCat(path, ".region"), "unset: send the bytes inline");
    case v1::TensorSpec::kDevice:
      if (sources == Sources::kShared) break;
      return NotImplemented(absl::StrCat(path, ".device"), "unset: send the bytes inline");
    case v1::TensorSpec::SOURCE_NOT_SET:
      break;
  }
  return tensor;
}

absl::StatusOr<Positions> PositionsFromWire(const v1::Positions& wire, const std::string& path,
                                            Sources sources) {
  switch (wire.kind_case()) {
    case v1::Positions::kRange:
      return AxisRangeFromWire(wire.range(), absl::StrCat(path, ".range"));
    case v1::Positions::kGrid:
      return GridFromWire(wire.grid(), absl::StrCat(path, ".grid"));
    case v1::Positions::kTensor:
      return PositionTensorFromWire(wire.tensor(), absl::StrCat(path, ".tensor"), sources);
    case v1::Positions::kRagged:
      return RaggedFromWire(wire.ragged());
    case v1::Positions::KIND_NOT_SET:
      break;
  }
  return Missing(path, "one of range, grid, tensor, ragged");
}

absl::StatusOr<EncodeRequest> EncodeRequestFromWire(const v1::EncodeItem& wire,
                                                    const std::string& path, Sources sources) {
  PHASOR_RETURN_IF_ERROR(CheckSource(wire, path));
  PHASOR_RETURN_IF_ERROR(CheckCommonFields(wire, path));
  EncodeRequest request;
  PHASOR_ASSIGN_OR_RETURN(request.spec, SpecFromWire(wire.spec(), absl::StrCat(path, ".spec")));
  PHASOR_RETURN_IF_ERROR(ReadTable(wire, path, &request));
  PHASOR_ASSIGN_OR_RETURN(
      request.positions,
      PositionsFromWire(wire.positions(), absl::StrCat(path, ".positions"), sources));
  PHASOR_ASSIGN_OR_RETURN(request.output_dtype,
                          EnumFromWire<Dtype>(wire.output_dtype(), path, ".output_dtype"));
  if (wire.has_add_to()) {
    PHASOR_ASSIGN_OR_RETURN(
        request.add_to, TensorDescFromWire(wire.add_to(), absl::StrCat(path, ".add_to"), sources));
  }
  if (wire.has_embedding_scale()) request.embedding_scale = wire.embedding_scale();
  request.pins = PinsFromWire(wire.pins());
  PHASOR_ASSIGN_OR_RETURN(const std::optional<EncodeOutput> output,
                          OptionalEnumFromWire<EncodeOutput>(wire.output(), path, ".output"));
  request.output = output.value_or(EncodeOutput::kEmbedding);
  PHASOR_RETURN_IF_ERROR(CheckDestination(wire, path, sources));
  return request;
}

absl::StatusOr<RopeRequest> RopeRequestFromWire(const v1::ApplyRoPEItem& wire,
                                                const std::string& path, Sources sources) {
  if (!wire.has_spec()) return Missing(absl::StrCat(path, ".spec"), "given");
  PHASOR_RETURN_IF_ERROR(CheckCommonFields(wire, path));
  RopeRequest request;
  PHASOR_ASSIGN_OR_RETURN(request.spec, SpecFromWire(wire.spec(), absl::StrCat(path, ".spec")));
  PHASOR_ASSIGN_OR_RETURN(
      request.positions,
      PositionsFromWire(wire.positions(), absl::StrCat(path, ".positions"), sources));
  PHASOR_ASSIGN_OR_RETURN(request.direction,
                          EnumFromWire<Direction>(wire.direction(), path, ".direction"));
  PHASOR_ASSIGN_OR_RETURN(request.layout, EnumFromWire<RopeLayout>(wire.layout(), path, ".layout"));
  PHASOR_RETURN_IF_ERROR(ReadOutputs(wire, path, sources, &request));
  PHASOR_RETURN_IF_ERROR(ReadDelta(wire, path, sources, &request));
  request.pins = PinsFromWire(wire.pins());
  return request;
}

void ToWire(const TensorDesc& tensor, v1::TensorSpec* wire) {
  wire->set_dtype(ToWire(tensor.dtype));
  wire->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  wire->mutable_strides()->Add(tensor.strides.begin(), tensor.strides.end());
}

v1::TensorSpec ToWire(const TensorDesc& tensor) {
  v1::TensorSpec wire;
  ToWire(tensor, &wire);
  return wire;
}

v1::Positions ToWire(const Positions& positions) {
  v1::Positions wire;
  std::visit(PositionsWriter{&wire}, positions);
  return wire;
}

v1::EncodeItem ToWire(const EncodeRequest& request) {
  v1::EncodeItem wire;
  wire.set_table(request.table);
  if (request.out_of_range != OutOfRange::kStrict) {
    wire.set_out_of_range(ToWire(request.out_of_range));
  }
  if (request.table.empty() || !(request.spec == Spec{})) {
    *wire.mutable_spec() = ToWire(request.spec);
  }
  *wire.mutable_positions() = ToWire(request.positions);
  wire.set_output_dtype(ToWire(request.output_dtype));
  if (request.add_to) *wire.mutable_add_to() = ToWire(*request.add_to);
  if (request.embedding_scale != 1.0) wire.set_embedding_scale(request.embedding_scale);
  if (request.output != EncodeOutput::kEmbedding) wire.set_output(ToWire(request.output));
  WritePins(request.pins, &wire);
  return wire;
}

v1::PagedCacheWrite ToWire(const PagedCache& cache) {
  v1::PagedCacheWrite wire;
  wire.set_key_index(static_cast<int>(cache.key_index));
  *wire.mutable_values() = ToWire(cache.values);
  *wire.mutable_key_cache() = ToWire(cache.key_cache);
  *wire.mutable_value_cache() = ToWire(cache.value_cache);
  *wire.mutable_slot_mapping() = ToWire(cache.slot_mapping);
  if (cache.value_inv_scale.has_value()) wire.set_value_inv_scale(*cache.value_inv_scale);
  return wire;
}

v1::ApplyRoPEItem ToWire(const RopeRequest& request) {
  v1::ApplyRoPEItem wire;
  *wire.mutable_spec() = ToWire(request.spec);
  *wire.mutable_positions() = ToWire(request.positions);
  for (const TensorDesc& tensor : request.tensors) {
    *wire.add_tensors()->mutable_tensor() = ToWire(tensor);
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const RopeOutput& output = request.outputs[i];
    v1::RopeTensor* const tensor = wire.mutable_tensors(static_cast<int>(i));
    if (output.dtype.has_value()) tensor->set_output_dtype(ToWire(*output.dtype));
    if (output.inv_scale.has_value()) tensor->set_inv_scale(*output.inv_scale);
  }
  if (request.paged_cache) *wire.mutable_paged_cache() = ToWire(*request.paged_cache);
  wire.set_direction(ToWire(request.direction));
  wire.set_layout(ToWire(request.layout));
  if (request.from_positions) *wire.mutable_from_positions() = ToWire(*request.from_positions);
  if (request.from_spec) *wire.mutable_from_spec() = ToWire(*request.from_spec);
  WritePins(request.pins, &wire);
  return wire;
}

int CountInlineTensors(const v1::EncodeItem& item) {
  return CountInline(item.positions()) + (item.has_add_to() ? CountInline(item.add_to()) : 0);
}

int CountInlineTensors(const v1::ApplyRoPEItem& item) {
  int count = CountInline(item.positions()) + CountInline(item.from_positions());
  for (const v1::RopeTensor& tensor : item.tensors()) {
    if (tensor.has_tensor()) count += CountInline(tensor.tensor());
  }
  if (item.has_paged_cache()) count += CountPagedCache(item.paged_cache());
  return count;
}

}  // namespace phasor
