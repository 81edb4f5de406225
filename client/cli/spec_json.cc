// SPDX-License-Identifier: Apache-2.0
#include "client/cli/spec_json.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "kernels/spec_fields.h"
#include "kernels/spec_names.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::cli {
namespace {

using Json = nlohmann::ordered_json;

// Values of every type that a field has, as JSON. Messages come last: theirs are of the others.
template <typename T>
Json Value(const std::vector<T>& list) {
  return list;
}

template <typename T>
requires(!std::is_class_v<T>) Json Value(const std::optional<T>& value) {
  if constexpr (std::is_enum_v<T>) {
    return Name(*value);
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

Json Value(const std::optional<XposScaling>& xpos) { return MessageValue(*xpos); }

Json Value(const std::optional<ParityArithmetic>& parity) { return MessageValue(*parity); }

Json Value(const RopeScaling& scaling) {
  Json json = Json::object();
  VisitScalingRules([&]<typename T>(const char* name, const T&) {
    if (const T* const rule = std::get_if<T>(&scaling)) json[name] = MessageValue(*rule);
  });
  return json;
}

absl::Status Wrong(const std::string& path, const Json& json, std::string_view accepted) {
  return absl::InvalidArgumentError(StrCat(path, ": ", json.dump(), ", must be ", accepted));
}

absl::Status NotAField(const std::string& path) {
  return absl::InvalidArgumentError(
      StrCat(path, ": no such field, must be one that `phasor resolve --json` prints"));
}

absl::Status Read(const Json& json, const std::string& path, double* out) {
  if (!json.is_number()) return Wrong(path, json, "a number");
  *out = json.get<double>();
  return absl::OkStatus();
}

absl::Status Read(const Json& json, const std::string& path, int64_t* out) {
  const bool fits = json.is_number_integer() &&
                    (!json.is_number_unsigned() ||
                     json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  if (!fits) return Wrong(path, json, "an integer of 64 bits");
  *out = json.get<int64_t>();
  return absl::OkStatus();
}

absl::Status Read(const Json& json, const std::string& path, int* out) {
  int64_t value = 0;
  PHASOR_RETURN_IF_ERROR(Read(json, path, &value));
  *out = static_cast<int>(value);
  if (*out != value) return Wrong(path, json, "an integer of 32 bits");
  return absl::OkStatus();
}

absl::Status Read(const Json& json, const std::string& path, bool* out) {
  if (!json.is_boolean()) return Wrong(path, json, "true or false");
  *out = json.get<bool>();
  return absl::OkStatus();
}

absl::Status Read(const Json& json, const std::string& path, std::string* out) {
  if (!json.is_string()) return Wrong(path, json, "a string");
  *out = json.get<std::string>();
  return absl::OkStatus();
}

template <typename E>
requires std::is_enum_v<E> absl::Status Read(const Json& json, const std::string& path, E* out) {
  std::string accepted;
  for (int i = 0; i < EnumeratorCount<E>(); ++i) {
    *out = static_cast<E>(i);
    if (json == Name(*out)) return absl::OkStatus();
    accepted += StrCat(i == 0 ? "" : ", ", Name(*out));
  }
  return Wrong(path, json, StrCat("one of ", accepted));
}

template <typename T>
absl::Status Read(const Json& json, const std::string& path, std::vector<T>* out) {
  if (!json.is_array()) return Wrong(path, json, "a list");
  for (size_t i = 0; i < json.size(); ++i) {
    PHASOR_RETURN_IF_ERROR(Read(json[i], StrCat(path, "[", i, "]"), &out->emplace_back()));
  }
  return absl::OkStatus();
}

// A message: every key must be a field.
template <typename T>
requires std::is_class_v<T> absl::Status Read(const Json& json, const std::string& path, T* out);

template <typename T>
absl::Status Read(const Json& json, const std::string& path, std::optional<T>* out) {
  return Read(json, path, &out->emplace());
}

absl::Status Read(const Json& json, const std::string& path, RopeScaling* out) {
  if (!json.is_object() || json.size() != 1) {
    return Wrong(path, json, R"(an object with one rule, e.g. {"linear": {"factor": 4}})");
  }
  const auto rule = json.begin();
  absl::Status status = NotAField(StrCat(path, ".", rule.key()));
  VisitScalingRules([&](const char* name, auto value) {
    if (rule.key() != name) return;
    status = Read(rule.value(), StrCat(path, ".", name), &value);
    *out = std::move(value);
  });
  return status;
}

template <typename T>
requires std::is_class_v<T> absl::Status Read(const Json& json, const std::string& path, T* out) {
  if (!json.is_object()) return Wrong(path, json, "an object");
  for (const auto& [key, value] : json.items()) {
    const std::string field = StrCat(path, ".", key);
    absl::Status status = NotAField(field);
    VisitFields(out, [&, &key = key, &value = value](const char* name, auto member) {
      if (key == name) status = Read(value, field, &(out->*member));
    });
    PHASOR_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status ReadSpecField(const std::string& key, const Json& json, Spec* spec) {
  const std::string path = StrCat("spec.", key);
  if (key == "preset") return Read(json, path, &spec->preset);
  if (key == "config_json") return Read(json, path, &spec->config_json);
  if (key == "encoder") return Read(json, path, &spec->encoder);
  absl::Status status = NotAField(path);
  VisitSpecFields([&](const SpecField& field, auto member, auto) {
    if (key == field.name) status = Read(json, path, &(spec->*member));
  });
  return status;
}

absl::StatusOr<Json> Parse(const std::string& text, std::string_view path) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(StrCat(path, ": not JSON"));
  return json;
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

absl::StatusOr<Spec> SpecFromJson(const std::string& text) {
  PHASOR_ASSIGN_OR_RETURN(Json json, Parse(text, "spec"));
  if (json.is_object() && json.contains("spec")) json = Json(json["spec"]);
  if (!json.is_object()) return Wrong("spec", json, "an object");
  Spec spec;
  for (const auto& [key, value] : json.items()) {
    PHASOR_RETURN_IF_ERROR(ReadSpecField(key, value, &spec));
  }
  return spec;
}

absl::StatusOr<RopeScaling> RopeScalingFromJson(const std::string& text) {
  PHASOR_ASSIGN_OR_RETURN(const Json json, Parse(text, "spec.rope_scaling"));
  RopeScaling scaling;
  PHASOR_RETURN_IF_ERROR(Read(json, "spec.rope_scaling", &scaling));
  return scaling;
}

absl::StatusOr<ParityArithmetic> ParityFromJson(const std::string& text) {
  PHASOR_ASSIGN_OR_RETURN(const Json json, Parse(text, "spec.parity"));
  ParityArithmetic parity;
  PHASOR_RETURN_IF_ERROR(Read(json, "spec.parity", &parity));
  return parity;
}

absl::StatusOr<XposScaling> XposFromJson(const std::string& text) {
  PHASOR_ASSIGN_OR_RETURN(const Json json, Parse(text, "spec.xpos"));
  XposScaling xpos;
  PHASOR_RETURN_IF_ERROR(Read(json, "spec.xpos", &xpos));
  return xpos;
}

}  // namespace phasor::cli
