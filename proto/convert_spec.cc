// SPDX-License-Identifier: Apache-2.0
// Converts specs, plans and parity reports to their messages and back. Walks the fields of a spec
// by reflection.
#include "proto/convert_spec.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/reflection.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/spec/fields.h"
#include "proto/enums.h"

namespace phasor {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Message fields have the names that kernels/spec/fields.h gives to the fields of Spec.
const FieldDescriptor* Find(const Message& message, const char* name) {
  return message.GetDescriptor()->FindFieldByName(name);
}

// The field of v1::Spec for each field that VisitSpecFields visits, in the same order.
const std::vector<const FieldDescriptor*>& SpecDescriptors() {
  static const auto& all = *new std::vector<const FieldDescriptor*>([] {
    std::vector<const FieldDescriptor*> found;
    VisitSpecFields([&found](const SpecField& field, auto, auto) {
      found.push_back(Find(v1::Spec::default_instance(), field.name));
    });
    return found;
  }());
  return all;
}

// Whether a field of v1::Spec is set, for each field that VisitSpecFields visits, in the same
// order. Most fields are not, and asking reflection takes a hundred instructions each.
#define PHASOR_HAS(name) [](const v1::Spec& wire) { return wire.has_##name(); }
#define PHASOR_ENUM(name) [](const v1::Spec& wire) { return wire.name() != 0; }
#define PHASOR_LIST(name) [](const v1::Spec& wire) { return !wire.name().empty(); }
constexpr bool (*kIsSet[])(const v1::Spec&) = {PHASOR_HAS(sub_config),
                                               PHASOR_HAS(layer_type),
                                               PHASOR_ENUM(kind),
                                               PHASOR_HAS(dim),
                                               PHASOR_HAS(axes),
                                               PHASOR_ENUM(axis_rule),
                                               PHASOR_LIST(axes_dim),
                                               PHASOR_LIST(mrope_section),
                                               PHASOR_LIST(axis_of_pair),
                                               PHASOR_ENUM(family),
                                               PHASOR_HAS(rope_theta),
                                               PHASOR_LIST(axes_theta),
                                               PHASOR_HAS(downscale_freq_shift),
                                               PHASOR_HAS(min_period),
                                               PHASOR_HAS(max_period),
                                               PHASOR_HAS(min_freq),
                                               PHASOR_HAS(max_freq),
                                               PHASOR_LIST(inv_freq),
                                               PHASOR_ENUM(frequency_unit),
                                               PHASOR_LIST(phase),
                                               PHASOR_HAS(live_pairs),
                                               PHASOR_HAS(position_scale),
                                               PHASOR_LIST(axes_position_scale),
                                               PHASOR_HAS(frequency_heads),
                                               PHASOR_ENUM(order),
                                               PHASOR_ENUM(arrangement),
                                               PHASOR_ENUM(grouping),
                                               PHASOR_ENUM(odd_dim),
                                               PHASOR_HAS(pad_front),
                                               PHASOR_HAS(pad_back),
                                               PHASOR_HAS(cos_bias),
                                               PHASOR_HAS(head_dim),
                                               PHASOR_HAS(rotary_dim),
                                               PHASOR_HAS(rotary_begin),
                                               PHASOR_HAS(partial_rotary_factor),
                                               PHASOR_ENUM(pairing),
                                               PHASOR_ENUM(pairing_out),
                                               PHASOR_HAS(attention_factor),
                                               PHASOR_HAS(rope_scaling),
                                               PHASOR_HAS(sequence_length),
                                               PHASOR_HAS(xpos),
                                               PHASOR_ENUM(precision),
                                               PHASOR_HAS(parity)};
static_assert(std::size(kIsSet) == [] {
  size_t fields = 0;
  VisitSpecFields([&fields](const SpecField&, auto, auto) { ++fields; });
  return fields;
}());
#undef PHASOR_HAS
#undef PHASOR_ENUM
#undef PHASOR_LIST

// A visitor that reads a field of `wire` into a field of Spec, and leaves that alone if the wire
// field is not set. Borrows the message and the path. Threads: one.
class Reader {
 public:
  Reader(const Message& wire, const std::string& path)
      : wire_(wire), reflection_(*wire.GetReflection()), path_(path) {}

  template <typename T>
  absl::Status Read(const FieldDescriptor* field, std::optional<T>* out) const {
    if (!reflection_.HasField(wire_, field)) return absl::OkStatus();
    if constexpr (std::is_enum_v<T>) {
      const int value = reflection_.GetEnumValue(wire_, field);
      *out = FindEnumerator<T>(value);
      if (!out->has_value()) return UnknownEnumError(value, field->enum_type(), PathOf(field));
    } else if constexpr (std::is_same_v<T, double>) {
      *out = reflection_.GetDouble(wire_, field);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      *out = reflection_.GetInt64(wire_, field);
    } else if constexpr (std::is_same_v<T, int>) {
      *out = reflection_.GetInt32(wire_, field);
    } else if constexpr (std::is_same_v<T, bool>) {
      *out = reflection_.GetBool(wire_, field);
    } else if constexpr (std::is_same_v<T, std::string>) {
      *out = reflection_.GetString(wire_, field);
    } else {
      return ReadMessage(field, &out->emplace());
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Read(const FieldDescriptor* field, std::vector<T>* out) const {
    // Most lists are empty, and getting a reference to one costs time.
    if (reflection_.FieldSize(wire_, field) == 0) return absl::OkStatus();
    const auto list = reflection_.GetRepeatedFieldRef<T>(wire_, field);
    out->assign(list.begin(), list.end());
    return absl::OkStatus();
  }

  absl::Status Read(const FieldDescriptor* field, RopeScaling* out) const {
    if (!reflection_.HasField(wire_, field)) return absl::OkStatus();
    const Message& scaling = reflection_.GetMessage(wire_, field);
    const FieldDescriptor* const set = scaling.GetReflection()->GetOneofFieldDescriptor(
        scaling, scaling.GetDescriptor()->oneof_decl(0));
    if (set == nullptr) return InvalidAt(PathOf(field), "empty; must name a rule");
    absl::Status status;
    VisitScalingRules([&](const char* name, auto rule) {
      if (set->name() != name) return;
      status = Reader(scaling, PathOf(field)).ReadMessage(set, &rule);
      *out = std::move(rule);
    });
    return status;
  }

 private:
  template <typename T>
  absl::Status ReadMessage(const FieldDescriptor* field, T* out) const {
    const Message& message = reflection_.GetMessage(wire_, field);
    const std::string path = PathOf(field);
    absl::Status status;
    VisitFields(out, [&](const char* name, auto member) {
      status.Update(Reader(message, path).Read(Find(message, name), &(out->*member)));
    });
    return status;
  }
  std::string PathOf(const FieldDescriptor* field) const {
    return absl::StrCat(path_, ".", field->name());
  }

  const Message& wire_;
  const Reflection& reflection_;
  const std::string& path_;
};

// A visitor that sets a field of `wire` if the field of Spec is set. Borrows the message. Threads:
// one.
class Writer {
 public:
  explicit Writer(Message* wire) : wire_(*wire), reflection_(*wire->GetReflection()) {}

  template <typename T>
  void Write(const FieldDescriptor* field, const std::optional<T>& value) const {
    if (!value.has_value()) return;
    if constexpr (std::is_enum_v<T>) {
      reflection_.SetEnumValue(&wire_, field, ToWire(*value));
    } else if constexpr (std::is_same_v<T, double>) {
      reflection_.SetDouble(&wire_, field, *value);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      reflection_.SetInt64(&wire_, field, *value);
    } else if constexpr (std::is_same_v<T, int>) {
      reflection_.SetInt32(&wire_, field, *value);
    } else if constexpr (std::is_same_v<T, bool>) {
      reflection_.SetBool(&wire_, field, *value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      reflection_.SetString(&wire_, field, *value);
    } else {
      WriteMessage(field, *value);
    }
  }

  template <typename T>
  void Write(const FieldDescriptor* field, const std::vector<T>& list) const {
    const auto out = reflection_.GetMutableRepeatedFieldRef<T>(&wire_, field);
    for (const T& value : list) out.Add(value);
  }

  void Write(const FieldDescriptor* field, const RopeScaling& scaling) const {
    VisitScalingRules([&]<typename T>(const char* name, const T&) {
      const T* const rule = std::get_if<T>(&scaling);
      if (rule == nullptr) return;
      Message* const message = reflection_.MutableMessage(&wire_, field);
      Writer(message).WriteMessage(Find(*message, name), *rule);
    });
  }

 private:
  template <typename T>
  void WriteMessage(const FieldDescriptor* field, const T& value) const {
    Message* const message = reflection_.MutableMessage(&wire_, field);
    VisitFields(&value, [&](const char* name, auto member) {
      Writer(message).Write(Find(*message, name), value.*member);
    });
  }

  Message& wire_;
  const Reflection& reflection_;
};

v1::ResolvedPair ToWire(const PairDetail& pair) {
  v1::ResolvedPair wire;
  wire.set_head(pair.head);
  wire.set_pair(pair.pair);
  wire.set_axis(pair.axis);
  wire.set_turns_whole(pair.turns.whole);
  wire.set_turns_fraction(pair.turns.fraction);
  wire.set_inv_freq(pair.inv_freq);
  wire.set_phase_offset(pair.phase_offset);
  if (pair.sine_column) wire.set_sine_column(*pair.sine_column);
  if (pair.cosine_column) wire.set_cosine_column(*pair.cosine_column);
  if (pair.first_lane) wire.set_first_lane(*pair.first_lane);
  if (pair.second_lane) wire.set_second_lane(*pair.second_lane);
  if (pair.first_lane_out) wire.set_first_lane_out(*pair.first_lane_out);
  if (pair.second_lane_out) wire.set_second_lane_out(*pair.second_lane_out);
  return wire;
}

}  // namespace

absl::StatusOr<Spec> SpecFromWire(const v1::Spec& wire, const std::string& path) {
  absl::StatusOr<Spec> result;
  Spec& spec = result.emplace();
  spec.preset = wire.preset();
  spec.config_json = wire.config_json();
  spec.encoder = wire.encoder();
  const Reader reader(wire, path);
  const std::vector<const FieldDescriptor*>& descriptors = SpecDescriptors();
  size_t i = 0;
  absl::Status status;
  VisitSpecFields([&](const SpecField&, auto member, auto) {
    if (kIsSet[i](wire)) status.Update(reader.Read(descriptors[i], &(spec.*member)));
    ++i;
  });
  if (!status.ok()) result = std::move(status);
  return result;
}

v1::Spec ToWire(const Spec& spec) {
  v1::Spec wire;
  if (!spec.preset.empty()) wire.set_preset(spec.preset);
  if (!spec.config_json.empty()) wire.set_config_json(spec.config_json);
  if (!spec.encoder.empty()) wire.set_encoder(spec.encoder);
  const Writer writer(&wire);
  auto descriptor = SpecDescriptors().begin();
  VisitSpecFields(
      [&](const SpecField&, auto member, auto) { writer.Write(*descriptor++, spec.*member); });
  return wire;
}

void SetRunInfo(std::string_view fingerprint, std::string_view backend, v1::RunInfo* info) {
  info->set_spec_fingerprint(fingerprint.data(), fingerprint.size());
  info->set_numerics_version(kNumericsVersion);
  info->set_backend(backend.data(), backend.size());
}

PairDetail PairFromWire(const v1::ResolvedPair& wire) {
  PairDetail pair = {.head = wire.head(),
                     .pair = wire.pair(),
                     .axis = wire.axis(),
                     .turns = {wire.turns_whole(), wire.turns_fraction()},
                     .inv_freq = wire.inv_freq(),
                     .phase_offset = wire.phase_offset()};
  if (wire.has_sine_column()) pair.sine_column = wire.sine_column();
  if (wire.has_cosine_column()) pair.cosine_column = wire.cosine_column();
  if (wire.has_first_lane()) pair.first_lane = wire.first_lane();
  if (wire.has_second_lane()) pair.second_lane = wire.second_lane();
  if (wire.has_first_lane_out()) pair.first_lane_out = wire.first_lane_out();
  if (wire.has_second_lane_out()) pair.second_lane_out = wire.second_lane_out();
  return pair;
}

v1::ResolveSpecResponse MakeResolveSpecResponse(const Plan& plan, const std::string& backend) {
  v1::ResolveSpecResponse response;
  *response.mutable_spec() = ToWire(ToSpec(plan.spec));
  response.set_amplitude(plan.amplitude);
  response.set_width(plan.spec.kind == SpecKind::kRotary ? plan.spec.head_dim : plan.spec.dim);
  SetRunInfo(plan.fingerprint, backend, response.mutable_info());
  for (const PairDetail& pair : DetailsOf(plan)) *response.add_pairs() = ToWire(pair);
  return response;
}

absl::StatusOr<parity::Comparison> ComparisonFromWire(const v1::ParityComparison& wire) {
  parity::Comparison comparison;
  if (wire.has_context_length()) comparison.context_length = wire.context_length();
  PHASOR_ASSIGN_OR_RETURN(comparison.model,
                          EnumFromWire<Dtype>(wire.dtype(), "parity_comparison.dtype"));
  return comparison;
}

v1::ParityComparison ToWire(const parity::Comparison& comparison) {
  v1::ParityComparison wire;
  if (comparison.context_length) wire.set_context_length(*comparison.context_length);
  wire.set_dtype(ToWire(comparison.model));
  return wire;
}

absl::StatusOr<parity::Report> ReportFromWire(const v1::ParityDifference& wire) {
  PHASOR_ASSIGN_OR_RETURN(const Dtype model,
                          EnumFromWire<Dtype>(wire.dtype(), "parity_difference.dtype"));
  return parity::Report{.context_length = wire.context_length(),
                        .positions = wire.positions(),
                        .model = model,
                        .largest = {.angle = wire.angle(),
                                    .value = wire.value(),
                                    .angle_position = wire.angle_position(),
                                    .value_position = wire.value_position()},
                        .inv_freq = {wire.inv_freq().begin(), wire.inv_freq().end()}};
}

v1::ParityDifference ToWire(const parity::Report& report) {
  v1::ParityDifference wire;
  wire.set_context_length(report.context_length);
  wire.set_positions(report.positions);
  wire.set_dtype(ToWire(report.model));
  wire.set_angle(report.largest.angle);
  wire.set_angle_position(report.largest.angle_position);
  wire.set_value(report.largest.value);
  wire.set_value_position(report.largest.value_position);
  wire.mutable_inv_freq()->Add(report.inv_freq.begin(), report.inv_freq.end());
  return wire;
}

}  // namespace phasor
