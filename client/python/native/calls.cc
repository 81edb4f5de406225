// SPDX-License-Identifier: Apache-2.0
// Reads the arguments of Python functions.
#include "client/python/native/calls.h"

#include <optional>
#include <string>
#include <vector>

#include "client/python/native/arrays.h"
#include "client/python/native/helpers.h"
#include "client/python/native/overlap.h"
#include "client/python/native/positions.h"
#include "kernels/base/text.h"

namespace phasor::python {
namespace {

std::optional<float> ToScale(nb::handle scale) {
  if (scale.is_none()) return std::nullopt;
  return ValueOf<float>(scale, "inv_scale");
}

// No output may overlap a tensor beside its own input.
void CheckOverlaps(const std::vector<RopeTensor>& tensors) {
  const auto input = [&](size_t i) {
    return NamedTensor(tensors[i].input, {"tensors", static_cast<int>(i)});
  };
  const auto output = [&](size_t i) {
    const bool in_place = tensors[i].output.data == tensors[i].input.data;
    return NamedTensor(tensors[i].output, {in_place ? "tensors" : "out", static_cast<int>(i)});
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    CheckOwnInput(output(i), input(i));
    for (size_t j = 0; j < i; ++j) {
      CheckApart(output(i), output(j));
      CheckApart(output(i), input(j));
      CheckApart(output(j), input(i));
    }
  }
}

void CheckOverlaps(const RopeTensor& keys, const PagedWrite& write) {
  const NamedTensor key_cache(keys.output, "key_cache");
  const NamedTensor value_cache(write.values.output, "value_cache");
  CheckApart(value_cache, key_cache);
  for (const NamedTensor& input :
       {NamedTensor(keys.input, "keys"), NamedTensor(write.values.input, "values"),
        NamedTensor(write.slot_mapping, "slot_mapping")}) {
    CheckApart(key_cache, input);
    CheckApart(value_cache, input);
  }
}

void AddTensors(nb::handle inputs, nb::handle outputs, nb::handle scales, Borrowed& borrowed,
                RopeCall& call) {
  const size_t count = nb::len(inputs);
  call.tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const int number = static_cast<int>(i);
    const nb::object input = inputs[i], output = outputs[i];
    RopeTensor& tensor = call.tensors.emplace_back();
    const bool in_place = input.is(output);
    if (in_place) {
      tensor = RopeTensor(ImportTensor(input, {"tensors", number}, Access::kWrite, borrowed));
    } else {
      tensor.input = ImportTensor(input, {"tensors", number}, Access::kRead, borrowed);
      tensor.output = ImportTensor(output, {"out", number}, Access::kWrite, borrowed);
    }
    if (!scales.is_none()) tensor.inv_scale = ToScale(scales[i]);
  }
  CheckOverlaps(call.tensors);
}

PagedWrite ToPages(nb::handle pages, Borrowed& borrowed, RopeCall& call) {
  call.tensors[0].output = ImportTensor(pages[1], "key_cache", Access::kWrite, borrowed);
  PagedWrite write;
  write.values = RopeTensor(TensorView(ImportTensor(pages[0], "values", Access::kRead, borrowed)),
                            ImportTensor(pages[2], "value_cache", Access::kWrite, borrowed));
  write.values.inv_scale = ToScale(pages[4]);
  write.slot_mapping = Import(pages[3], "slot_mapping", Access::kRead, borrowed);
  CheckOverlaps(call.tensors[0], write);
  return write;
}

// The rank of a result without a batch, for a spec whose heads share frequencies.
size_t RankOf(EncodeOutput form) {
  switch (form) {
    case EncodeOutput::kEmbedding:
    case EncodeOutput::kCos:
    case EncodeOutput::kCosDuplicated:
    case EncodeOutput::kCosRepeated:
    case EncodeOutput::kSin:
    case EncodeOutput::kSinDuplicated:
    case EncodeOutput::kSinRepeated:
      return 2;
    case EncodeOutput::kMatrix2x2:
      return 4;
    default:
      return 3;
  }
}

// [batch, tokens, ...] as [batch * tokens, ...], as the service has it.
void JoinBatch(std::optional<MutableTensorView>& view, const EncodeCall& call,
               std::string_view path) {
  const bool own_heads = call.spec.frequency_heads.value_or(1) > 1;
  const size_t rank = RankOf(call.form) + (own_heads ? 1 : 0);
  if (!view.has_value() || view->desc.shape.size() != rank + 1) return;
  TensorDesc& desc = view->desc;
  if (!desc.strides.empty()) {
    if (desc.strides[0] != desc.shape[1] * desc.strides[1]) {
      RaiseInvalid(StrCat(path, ".strides"),
                   "batch entries that do not follow each other; copy it");
    }
    desc.strides.erase(desc.strides.begin());
  }
  desc.shape[1] *= desc.shape[0];
  desc.shape.erase(desc.shape.begin());
}

BiasSpec ToBiasSpec(nb::handle preset, nb::handle family, nb::dict fields) {
  BiasSpec spec;
  spec.preset = ValueOf<std::string>(preset, "kind");
  const int code = nb::cast<int>(family);
  if (code >= 0) spec.family = static_cast<BiasFamily>(code);
  const auto set = [&](const char* name, auto& field) {
    using T = std::decay_t<decltype(*field)>;
    if (fields.contains(name)) field = ValueOf<T>(fields[name], name);
  };
  set("num_buckets", spec.num_buckets);
  set("max_distance", spec.max_distance);
  set("bidirectional", spec.bidirectional);
  if (fields.contains("window")) {
    for (nb::handle n : fields["window"]) spec.window.push_back(ValueOf<int64_t>(n, "window"));
  }
  return spec;
}

}  // namespace

Pins ToPins(nb::handle pins) {
  if (pins.is_none()) return {};
  return {.spec_fingerprint = ValueOf<std::string>(pins[0], "pins.fingerprint"),
          .numerics_version = ValueOf<uint32_t>(pins[1], "pins.numerics_version"),
          .backend = ValueOf<std::string>(pins[2], "pins.backend")};
}

RopeCall ToRopeCall(nb::tuple arguments, Borrowed& borrowed) {
  RopeCall call;
  call.spec = nb::cast<const Spec&>(arguments[0]);
  call.positions = ImportPositions(arguments[1], "positions", borrowed);
  call.layout = static_cast<RopeLayout>(nb::cast<int>(arguments[4]));
  call.direction = static_cast<Direction>(nb::cast<int>(arguments[5]));
  call.from_positions = ImportOptionalPositions(arguments[6], "from_positions", borrowed);
  if (!arguments[7].is_none()) call.from_spec = nb::cast<const Spec&>(arguments[7]);
  call.pins = ToPins(arguments[10]);
  const nb::object pages = arguments[9];
  if (pages.is_none()) {
    AddTensors(arguments[2], arguments[3], arguments[8], borrowed, call);
    return call;
  }
  RopeTensor& keys = call.tensors.emplace_back();
  keys.input = ImportTensor(arguments[2][0], "keys", Access::kRead, borrowed);
  if (!arguments[8].is_none()) keys.inv_scale = ToScale(arguments[8][0]);
  call.paged = ToPages(pages, borrowed, call);
  return call;
}

EncodeCall ToEncodeCall(nb::tuple arguments, Borrowed& borrowed) {
  EncodeCall call;
  if (!arguments[0].is_none()) call.spec = nb::cast<const Spec&>(arguments[0]);
  call.positions = ImportPositions(arguments[1], "positions", borrowed);
  call.output_dtype = static_cast<Dtype>(nb::cast<int>(arguments[2]));
  call.form = static_cast<EncodeOutput>(nb::cast<int>(arguments[3]));
  auto add_to = ImportOptional(arguments[4], "add_to", Access::kRead, borrowed);
  JoinBatch(add_to, call, "add_to");
  if (add_to.has_value()) call.add_to = *add_to;
  call.embedding_scale = ValueOf<double>(arguments[5], "scale");
  call.output = ImportOptional(arguments[kEncodeOutput], "out", Access::kWrite, borrowed);
  JoinBatch(call.output, call, "out");
  if (call.output.has_value() && call.add_to.has_value()) {
    CheckOwnInput({*call.output, "out"}, {*call.add_to, "add_to"});
  }
  if (!arguments[7].is_none()) call.table = ValueOf<std::string>(arguments[7], "table");
  call.out_of_range = ValueOf<bool>(arguments[8], "clip") ? OutOfRange::kClip : OutOfRange::kStrict;
  call.pins = ToPins(arguments[9]);
  return call;
}

BiasCall ToBiasCall(nb::tuple arguments, Borrowed& borrowed) {
  BiasCall call;
  call.spec = ToBiasSpec(arguments[0], arguments[1], nb::cast<nb::dict>(arguments[2]));
  call.heads = ValueOf<int64_t>(arguments[3], "heads");
  call.query_positions = ImportOptionalPositions(arguments[4], "queries", borrowed);
  call.key_positions = ImportOptionalPositions(arguments[5], "keys", borrowed);
  const nb::object table = arguments[6];
  if (nb::isinstance<nb::str>(table)) {
    call.table = nb::cast<std::string>(table);
  } else {
    call.table_values = ImportOptional(table, "table", Access::kRead, borrowed);
  }
  call.output_dtype = static_cast<Dtype>(nb::cast<int>(arguments[7]));
  call.add_to = ImportOptional(arguments[8], "add_to", Access::kRead, borrowed);
  call.output = ImportOptional(arguments[9], "out", Access::kWrite, borrowed);
  if (call.output.has_value()) {
    const NamedTensor output(*call.output, "out");
    if (call.add_to.has_value()) CheckOwnInput(output, {*call.add_to, "add_to"});
    if (call.table_values.has_value()) CheckApart(output, {*call.table_values, "table"});
  }
  call.pins = ToPins(arguments[10]);
  return call;
}

int64_t BatchOf(const PositionList& positions, int64_t rows) {
  const auto* tensor = std::get_if<PositionTensor>(&positions.value());
  if (tensor == nullptr || tensor->shape.size() < 2) return 0;
  const std::vector<int64_t>& shape = tensor->shape;
  // Two dimensions are [batch, tokens], or [tokens, axes] of fewer rows.
  return shape.size() == 3 || shape[0] * shape[1] == rows ? shape[0] : 0;
}

}  // namespace phasor::python
