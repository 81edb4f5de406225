// SPDX-License-Identifier: Apache-2.0
// Writes and reads specs as JSON by walking the list of fields in fields.h.
#include "kernels/spec/spec_json.h"

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/names.h"

namespace phasor {
namespace {

// The prefix that spec.proto puts before an enumerator's name.
constexpr std::string_view Prefix(SpecKind) { return "SPEC_KIND_"; }
constexpr std::string_view Prefix(FrequencyFamily) { return "FREQUENCY_FAMILY_"; }
constexpr std::string_view Prefix(FrequencyUnit) { return "FREQUENCY_UNIT_"; }
constexpr std::string_view Prefix(TrigOrder) { return "TRIG_ORDER_"; }
constexpr std::string_view Prefix(Arrangement) { return "ARRANGEMENT_"; }
constexpr std::string_view Prefix(AxisGrouping) { return "AXIS_GROUPING_"; }
constexpr std::string_view Prefix(AxisRule) { return "AXIS_RULE_"; }
constexpr std::string_view Prefix(Pairing) { return "PAIRING_"; }
constexpr std::string_view Prefix(OddDim) { return "ODD_DIM_"; }
constexpr std::string_view Prefix(Precision) { return "PRECISION_"; }
constexpr std::string_view Prefix(ParityFrequency) { return "PARITY_FREQUENCY_"; }
constexpr std::string_view Prefix(ParityType) { return "PARITY_TYPE_"; }

// Value() gives the JSON of every type that a field has. Messages come last: they use the others.
template <typename T>
Json Value(const std::vector<T>& list) {
  return list;
}

template <typename T>
Json MessageValue(const T& message);

template <typename T>
Json Value(const std::optional<T>& value) {
  if constexpr (std::is_enum_v<T>) {
    return Name(*value);
  } else if constexpr (std::is_same_v<T, XposScaling> || std::is_same_v<T, ParityArithmetic>) {
    return MessageValue(*value);
  } else {
    return *value;
  }
}

template <typename T>
Json MessageValue(const T& message) {
  Json json = Json::object();
  VisitFields(&message, [&](const char* name, auto member) {
    if (IsSet(message.*member)) json[name] = Value(message.*member);
  });
  return json;
}

Json Value(const RopeScaling& scaling) {
  Json json = Json::object();
  VisitScalingRules([&]<typename T>(const char* name, const T&) {
    if (const T* const rule = std::get_if<T>(&scaling)) json[name] = MessageValue(*rule);
  });
  return json;
}

template <typename E>
requires std::is_enum_v<E> absl::Status Read(const Json& json, std::string_view path, E* out) {
  std::vector<std::string> accepted;
  for (int i = 0; i < EnumeratorCount<E>(); ++i) {
    *out = static_cast<E>(i);
    const std::string_view name = Name(*out);
    if (json == name || json == StrCat(Prefix(*out), name)) return absl::OkStatus();
    accepted.emplace_back(name);
  }
  return WrongName(path, json, accepted);
}

template <typename T>
requires(!std::is_class_v<T> && !std::is_enum_v<T>) absl::Status
    Read(const Json& json, std::string_view path, T* out) {
  return ReadJson(json, path, out);
}

absl::Status Read(const Json& json, std::string_view path, std::string* out) {
  return ReadJson(json, path, out);
}

template <typename T>
absl::Status Read(const Json& json, std::string_view path, std::vector<T>* out) {
  return ReadJson(json, path, out);
}

// Reads a message. Every key must be a field.
template <typename T>
requires std::is_class_v<T> absl::Status Read(const Json& json, std::string_view path, T* out);

template <typename T>
absl::Status Read(const Json& json, std::string_view path, std::optional<T>* out) {
  return Read(json, path, &out->emplace());
}

absl::Status Read(const Json& json, std::string_view path, RopeScaling* out) {
  if (!json.is_object() || json.size() != 1) {
    return WrongJson(path, json, R"(an object with one rule, e.g. {"linear": {"factor": 4}})");
  }
  const auto rule = json.begin();
  std::vector<std::string_view> known;
  absl::Status status;
  bool found = false;
  VisitScalingRules([&](const char* name, auto value) {
    known.emplace_back(name);
    if (rule.key() != name) return;
    found = true;
    status = Read(rule.value(), StrCat(path, ".", name), &value);
    *out = std::move(value);
  });
  return found ? status : UnknownKey(path, rule.key(), known);
}

template <typename T>
requires std::is_class_v<T> absl::Status Read(const Json& json, std::string_view path, T* out) {
  if (!json.is_object()) return WrongJson(path, json, "an object");
  for (const auto& [key, value] : json.items()) {
    std::vector<std::string_view> known;
    absl::Status status;
    bool found = false;
    VisitFields(out, [&, &key = key, &value = value](const char* name, auto member) {
      known.emplace_back(name);
      if (key != name) return;
      found = true;
      status = Read(value, StrCat(path, ".", name), &(out->*member));
    });
    if (!found) return UnknownKey(path, key, known);
    PHASOR_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status ReadSpecField(const std::string& key, const Json& json, std::string_view path,
                           Spec* spec) {
  std::vector<std::string_view> known;
  absl::Status status;
  bool found = false;
  const auto read = [&](const char* name, auto* out) {
    known.emplace_back(name);
    if (key != name) return;
    found = true;
    status = Read(json, StrCat(path, ".", name), out);
  };
  read("preset", &spec->preset);
  read("config_json", &spec->config_json);
  read("encoder", &spec->encoder);
  VisitSpecFields(
      [&](const SpecField& field, auto member, auto) { read(field.name, &(spec->*member)); });
  return found ? status : UnknownKey(path, key, known);
}

template <typename T>
absl::StatusOr<T> FieldFromJson(std::string_view text, std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  T field;
  PHASOR_RETURN_IF_ERROR(Read(json, path, &field));
  return field;
}

}  // namespace

Json ToJson(const Spec& spec) {
  Json json = Json::object();
  if (!spec.preset.empty()) json["preset"] = spec.preset;
  if (!spec.config_json.empty()) json["config_json"] = spec.config_json;
  if (!spec.encoder.empty()) json["encoder"] = spec.encoder;
  VisitSpecFields([&](const SpecField& field, auto member, auto) {
    if (IsSet(spec.*member)) json[field.name] = Value(spec.*member);
  });
  return json;
}

absl::StatusOr<Spec> SpecFromJson(const Json& json, std::string_view path) {
  if (!json.is_object()) return WrongJson(path, json, "an object");
  Spec spec;
  for (const auto& [key, value] : json.items()) {
    PHASOR_RETURN_IF_ERROR(ReadSpecField(key, value, path, &spec));
  }
  return spec;
}

absl::StatusOr<Spec> SpecFromJson(std::string_view text) {
  PHASOR_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "spec"));
  return SpecFromJson(json.is_object() && json.contains("spec") ? json["spec"] : json, "spec");
}

absl::StatusOr<RopeScaling> RopeScalingFromJson(std::string_view text) {
  return FieldFromJson<RopeScaling>(text, "spec.rope_scaling");
}

absl::StatusOr<ParityArithmetic> ParityFromJson(std::string_view text) {
  return FieldFromJson<ParityArithmetic>(text, "spec.parity");
}

absl::StatusOr<XposScaling> XposFromJson(std::string_view text) {
  return FieldFromJson<XposScaling>(text, "spec.xpos");
}

}  // namespace phasor
