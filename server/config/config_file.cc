// SPDX-License-Identifier: Apache-2.0
// Reads and prints configuration files with protobuf's parsers, and rewrites their error messages.
#include "server/config/config_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/reflection.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "phasor/config/v1/server_config.pb.h"
#include "proto/convert_spec.h"
#include "server/base/regular_file.h"

namespace phasor {
namespace {

using config::v1::ServerConfig;
using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxConfigBytes);
  if (text.ok()) return text;
  return absl::Status(text.status().code(),
                      absl::StrCat("config: '", path, "' ", text.status().message()));
}

bool IsJson(const std::string& path, const std::string& text) {
  if (absl::EndsWith(path, ".json")) return true;
  for (const char* extension : {".txtpb", ".textproto", ".pbtxt"}) {
    if (absl::EndsWith(path, extension)) return false;
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{';
}

std::string UnknownField(absl::string_view name, const Descriptor* message) {
  std::vector<std::string> names;
  for (int i = 0; message != nullptr && i < message->field_count(); ++i) {
    names.emplace_back(message->field(i)->name());
  }
  const std::string nearest = NearestName(std::string(name), names);
  return absl::StrCat("unknown field '", name, "'; did you mean '", nearest, "'?");
}

// `known` are an enum's values, of which the first is PREFIX_UNSPECIFIED.
std::string UnknownValue(const std::string& name, const std::vector<std::string>& known) {
  absl::string_view prefix = known.front();
  absl::ConsumeSuffix(&prefix, "UNSPECIFIED");
  const bool has_prefix = absl::StartsWithIgnoreCase(name, prefix);
  const std::string meant = has_prefix ? name : absl::StrCat(prefix, name);
  return absl::StrCat("unknown value '", name, "'", DidYouMean(meant, known), " must be one of ",
                      absl::StrJoin(known, ", "));
}

std::vector<std::string> ValuesOf(const EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; type != nullptr && i < type->value_count(); ++i) {
    names.emplace_back(type->value(i)->name());
  }
  return names;
}

// The values of the first enum field of that name in `message` or what it holds. Text format says
// no more of the place than the line and this name.
std::vector<std::string> ValuesOfField(const std::string& name, const Descriptor* message,
                                       std::set<const Descriptor*>* seen) {
  if (message == nullptr || !seen->insert(message).second) return {};
  const FieldDescriptor* const field = message->FindFieldByName(name);
  if (field != nullptr && field->enum_type() != nullptr) return ValuesOf(field->enum_type());
  for (int i = 0; i < message->field_count(); ++i) {
    auto values = ValuesOfField(name, message->field(i)->message_type(), seen);
    if (!values.empty()) return values;
  }
  return {};
}

// Text format: 'Message type "a.B" has no field named "c".', 'Unknown enumeration value of "D" for
// field "e".'
std::string InOurWords(const std::string& text_format_error) {
  const std::vector<std::string> parts = absl::StrSplit(text_format_error, '"');
  if (parts.size() == 5 && parts[0] == "Unknown enumeration value of ") {
    std::set<const Descriptor*> seen;
    const auto known = ValuesOfField(parts[3], ServerConfig::descriptor(), &seen);
    if (!known.empty()) return absl::StrCat(parts[3], ": ", UnknownValue(parts[1], known));
  }
  if (parts.size() != 5 || parts[2] != " has no field named ") return text_format_error;
  const auto* const pool = ServerConfig::descriptor()->file()->pool();
  return UnknownField(parts[3], pool->FindMessageTypeByName(parts[1]));
}

// The message type at a path such as "encoders[1].spec".
const Descriptor* MessageAt(absl::string_view path) {
  const Descriptor* message = ServerConfig::descriptor();
  for (absl::string_view step : absl::StrSplit(path, '.', absl::SkipEmpty())) {
    const std::string name(step.substr(0, step.find('[')));
    const FieldDescriptor* field = message->FindFieldByName(name);
    if (field == nullptr) field = message->FindFieldByCamelcaseName(name);
    if (field == nullptr || field->message_type() == nullptr) return nullptr;
    message = field->message_type();
  }
  return message;
}

// Rewrites an error of JSON of protobuf 22 and later, whose words are separated by varying numbers
// of spaces: 'invalid JSON in a.B @ encoders[1].spec: message a.C, near 1:29 (offset 28): no such
// field: 'dime''. Without a path, ' @ ' is missing.
std::string LaterJsonErrorInOurWords(const std::string& error) {
  const std::string words = absl::StrJoin(absl::StrSplit(error, ' ', absl::SkipEmpty()), " ");
  const auto between = [&words](const char* before, const char* after) -> std::string {
    const size_t found = words.find(before);
    if (found == words.npos) return "";
    const size_t begin = found + std::strlen(before);
    return words.substr(begin, words.find(after, begin) - begin);
  };
  const std::string path = between(" @ ", ": ");
  const std::string place = between(", near ", " (offset ");
  const std::string name = between("no such field: '", "'");
  const std::string wrong = words.substr(words.find("): ") + 3);
  return absl::StrCat(
      path, path.empty() ? "" : ": ",
      name.empty() ? absl::StrCat(wrong, " at ", place) : UnknownField(name, MessageAt(path)));
}

// Rewrites '(encoders[1].spec.dim): invalid value "x" for type TYPE_INT64'; empty: it is another
// error.
std::string WrongTypeInOurWords(absl::string_view error) {
  constexpr absl::string_view kValue = "): invalid value ", kType = " for type TYPE_";
  const size_t value = error.find(kValue), type = error.rfind(kType);
  if (!absl::StartsWith(error, "(") || value == error.npos || type == error.npos) return "";
  const absl::string_view name = error.substr(type + kType.size());
  const size_t begin = value + kValue.size();
  return absl::StrCat(error.substr(1, value - 1), ": ", error.substr(begin, type - begin),
                      " is not accepted; must be ",
                      name == "STRING"                      ? "a string in quotes"
                      : name == "BOOL"                      ? "true or false"
                      : name == "DOUBLE" || name == "FLOAT" ? "a number"
                                                            : "a whole number");
}

// Rewrites an error of JSON: '(encoders[1].spec) dime: Cannot find field.'
std::string JsonErrorInOurWords(const std::string& error) {
  if (absl::StartsWith(error, "invalid JSON") && absl::StrContains(error, "): ")) {
    return LaterJsonErrorInOurWords(error);
  }
  absl::string_view name = error;
  // '(encoders[1].spec.precision): invalid value "EXACT" for type type.googleapis.com/a.B'
  const std::vector<std::string> parts = absl::StrSplit(error, '"');
  if (parts.size() == 3 && absl::EndsWith(parts[0], "): invalid value ")) {
    const std::string type = parts[2].substr(parts[2].rfind('/') + 1);
    const auto known =
        ValuesOf(ServerConfig::descriptor()->file()->pool()->FindEnumTypeByName(type));
    const std::string path = parts[0].substr(1, parts[0].find(')') - 1);
    if (!known.empty()) return absl::StrCat(path, ": ", UnknownValue(parts[1], known));
  }
  if (!absl::ConsumeSuffix(&name, ": Cannot find field.")) {
    const std::string wrong_type = WrongTypeInOurWords(error);
    return wrong_type.empty() ? error : wrong_type;
  }
  absl::string_view path;
  if (absl::ConsumePrefix(&name, "(")) {
    const size_t end = name.find(')');
    path = name.substr(0, end);
    name.remove_prefix(std::min(name.size(), end + 2));
  }
  return absl::StrCat(path, path.empty() ? "" : ": ", UnknownField(name, MessageAt(path)));
}

// Collects the errors of a parser. protobuf before 22 calls AddError, later ones RecordError.
// Threads: one.
class Complaints final : public google::protobuf::io::ErrorCollector {
 public:
  explicit Complaints(const std::string& path) : path_(path) {}
  void RecordError(int line, int /*column*/, absl::string_view message) {
    lines_.push_back(absl::StrCat(path_, ":", line + 1, ": ", InOurWords(std::string(message))));
  }
  void AddError(int line, int column, const std::string& message) {
    RecordError(line, column, message);
  }
  absl::Status status() const { return absl::InvalidArgumentError(absl::StrJoin(lines_, "\n")); }

 private:
  const std::string& path_;
  std::vector<std::string> lines_;
};

// A parsed file, and the lines of its fields.
struct Parsed {
  ServerConfig config;
  TextFormat::ParseInfoTree places;  // empty for JSON
  const std::string& path;

  std::string Where(const FieldDescriptor* field, int index) {
    const auto place = places.GetLocation(field, index);
    return place.line < 0 ? path : absl::StrCat(path, ":", place.line + 1);
  }
};

absl::Status ParseText(const std::string& text, Parsed* parsed) {
  Complaints complaints(parsed->path);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&complaints);
  parser.WriteLocationsTo(&parsed->places);
  return parser.ParseFromString(text, &parsed->config) ? absl::OkStatus() : complaints.status();
}

absl::Status ParseJson(const std::string& text, Parsed* parsed) {
  const auto status = google::protobuf::util::JsonStringToMessage(text, &parsed->config);
  if (status.ok()) return absl::OkStatus();
  const std::string message(status.message().data(), status.message().size());
  return InvalidAt(parsed->path, JsonErrorInOurWords(message));
}

const FieldDescriptor* FieldOf(const Option& option) {
  return ServerConfig::descriptor()->FindFieldByName(
      absl::StrReplaceAll(option.name, {{"-", "_"}}));
}

// The value of a field in the form that a flag takes; nullopt if it is not set.
std::optional<std::string> FieldText(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  if (field->is_repeated()) {
    const auto list = reflection.GetRepeatedFieldRef<std::string>(message, field);
    if (list.empty()) return std::nullopt;
    return absl::StrJoin(list, ",");
  }
  if (!reflection.HasField(message, field)) return std::nullopt;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    return absl::StrCat(reflection.GetInt64(message, field));
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    return reflection.GetBool(message, field) ? "true" : "false";
  }
  return reflection.GetString(message, field);
}

// Sets a field from a text of that form.
void SetFieldText(const std::string& text, const FieldDescriptor* field, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  if (field->is_repeated()) {
    for (absl::string_view item : absl::StrSplit(text, ',')) {
      reflection.AddString(message, field, std::string(item));
    }
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    int64_t number = 0;
    const bool valid = absl::SimpleAtoi(text, &number);
    static_cast<void>(valid);  // always valid: the text is an option's own
    reflection.SetInt64(message, field, number);
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    reflection.SetBool(message, field, text == "true");
  } else {
    reflection.SetString(message, field, text);
  }
}

// `status` with the place of the error before its message.
absl::Status At(const std::string& where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

absl::Status ReadEncoders(Parsed* parsed, std::vector<NamedSpec>* encoders) {
  const FieldDescriptor* const field = ServerConfig::descriptor()->FindFieldByName("encoders");
  for (int i = 0; i < parsed->config.encoders_size(); ++i) {
    const config::v1::Encoder& wire = parsed->config.encoders(i);
    const std::string path = absl::StrCat("encoders[", i, "]");
    absl::StatusOr<Spec> spec = SpecFromWire(wire.spec(), path + ".spec");
    if (!spec.ok()) return At(parsed->Where(field, i), spec.status());
    encoders->push_back({wire.name(), *std::move(spec)});
    if (absl::Status status = CheckEncoder(encoders->back(), path); !status.ok()) {
      return At(parsed->Where(field, i), status);
    }
  }
  const absl::Status all = EncoderSet::Make(*encoders).status();
  return all.ok() ? all : At(parsed->path, all);
}

}  // namespace

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  Parsed parsed{.config = {}, .places = {}, .path = path};
  PHASOR_RETURN_IF_ERROR(IsJson(path, text) ? ParseJson(text, &parsed) : ParseText(text, &parsed));
  ConfigFile file;
  for (const Option& option : Options()) {
    const FieldDescriptor* const field = FieldOf(option);
    std::optional<std::string> value = FieldText(parsed.config, field);
    if (!value.has_value()) continue;
    file.values[option.name] = {*std::move(value),
                                parsed.Where(field, field->is_repeated() ? 0 : -1)};
  }
  PHASOR_RETURN_IF_ERROR(ReadEncoders(&parsed, &file.encoders));
  return file;
}

std::string PrintConfig(const ServerOptions& options,
                        const std::map<std::string, std::string>& origins) {
  ServerConfig config;
  std::string text;
  for (const Option& option : Options()) {
    const FieldDescriptor* const field = FieldOf(option);
    SetFieldText(TextOf(options, option), field, &config);
    const int count = field->is_repeated() ? config.GetReflection()->FieldSize(config, field) : 1;
    for (int i = 0; i < count; ++i) {
      std::string value;
      TextFormat::PrintFieldValueToString(config, field, field->is_repeated() ? i : -1, &value);
      absl::StrAppend(&text, field->name(), ": ", value, "  # ", origins.at(option.name), "\n");
    }
  }
  ServerConfig encoders;
  for (const NamedSpec& encoder : options.encoders) {
    config::v1::Encoder* const out = encoders.add_encoders();
    out->set_name(encoder.name);
    *out->mutable_spec() = ToWire(encoder.spec);
  }
  std::string rest;
  static_cast<void>(TextFormat::PrintToString(encoders, &rest));  // writing to a string cannot fail
  return text + rest;
}

}  // namespace phasor
