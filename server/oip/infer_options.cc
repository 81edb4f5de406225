// SPDX-License-Identifier: Apache-2.0
// Turns parameters into JSON values, which the readers of spec files understand. Lists and objects
// come as JSON text in a string.
#include "server/oip/infer_options.h"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/base/invalid.h"
#include "kernels/base/json.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec_base.h"
#include "kernels/spec/spec_json.h"
#include "server/oip/datatype.h"

namespace phasor::oip {
namespace {

constexpr char kPath[] = "parameters";

absl::Status InvalidParameter(std::string_view key, std::string_view what) {
  return Invalid(kPath, ".", Shown(key), ": ", what);
}

absl::StatusOr<Json> JsonOf(const std::string& key, const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return Json(parameter.bool_param());
    case inference::InferParameter::kInt64Param:
      return Json(parameter.int64_param());
    case inference::InferParameter::kDoubleParam:
      return Json(parameter.double_param());
    case inference::InferParameter::kUint64Param:
      return Json(parameter.uint64_param());
    case inference::InferParameter::kStringParam: {
      const std::string& text = parameter.string_param();
      const bool nested = absl::StartsWith(text, "[") || absl::StartsWith(text, "{");
      if (nested) return ParseJson(text, StrCat(kPath, ".", Shown(key)));
      return Json(text);
    }
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return InvalidParameter(key, "no value; must have one");
}

// Reads the parameters that client libraries add by themselves.
absl::Status CheckOfClient(const std::string& key, const Json& value, InferOptions* out) {
  if (key == "triton_enable_empty_final_response") {
    return value.is_boolean() ? absl::OkStatus() : InvalidParameter(key, "must be a bool_param");
  }
  int64_t number = 0;
  PHASOR_RETURN_IF_ERROR(ReadJson(value, StrCat(kPath, ".", key), &number));
  if (key != "timeout") return absl::OkStatus();  // a priority has no effect: there is one queue
  if (number < 0) return InvalidParameter(key, "below 0; must be microseconds, or 0 for none");
  if (number > 0) out->timeout = absl::Microseconds(number);
  return absl::OkStatus();
}

bool IsOfClient(std::string_view key) {
  return key == "priority" || key == "timeout" || key == "triton_enable_empty_final_response";
}

// What clients of other servers of this protocol add by themselves, KServe's and MLServer's. They
// say how the client encodes its own data, so no answer depends on them.
bool IsOfOtherServers(std::string_view key) {
  return key == "binary_data_output" || key == "binary_data_size" || key == "content_type" ||
         key == "headers";
}

absl::Status ReadDatatype(const std::string& key, const Json& value, std::optional<Dtype>* out) {
  std::string name;
  PHASOR_RETURN_IF_ERROR(ReadJson(value, StrCat(kPath, ".", key), &name));
  *out = DtypeOf(name);
  if (out->has_value()) return absl::OkStatus();
  return InvalidParameter(key, StrCat("'", Shown(name), "'; must be ", kAcceptedDatatypes));
}

// Reads one of these names, in upper or lower case.
template <typename E>
absl::Status ReadName(const std::string& key, const Json& value,
                      const std::vector<std::pair<std::string, E>>& names, E* out) {
  const std::string path = StrCat(kPath, ".", key);
  std::string given;
  PHASOR_RETURN_IF_ERROR(ReadJson(value, path, &given));
  std::vector<std::string> accepted;
  for (const auto& [name, meaning] : names) {
    accepted.push_back(name);
    if (!absl::EqualsIgnoreCase(given, name)) continue;
    *out = meaning;
    return absl::OkStatus();
  }
  return WrongName(path, value, accepted);
}

// Reads a parameter that is an option of the call. Returns false if it is none of those.
absl::StatusOr<bool> ReadCommon(const Model& model, const std::string& key, const Json& value,
                                InferOptions* out) {
  const std::string path = StrCat(kPath, ".", key);
  if (IsOfClient(key)) {
    PHASOR_RETURN_IF_ERROR(CheckOfClient(key, value, out));
  } else if (absl::StartsWith(key, "triton_")) {
    return InvalidParameter(key, "names that begin with triton_ are reserved; must not be set");
  } else if (model.kind == ModelKind::kRotary && key == "direction") {
    PHASOR_RETURN_IF_ERROR(ReadName<Direction>(key, value,
                                               {{"FORWARD", Direction::kForward},
                                                {"INVERSE", Direction::kInverse},
                                                {"DELTA", Direction::kDelta}},
                                               &out->direction));
  } else if (model.kind == ModelKind::kRotary && key == "layout") {
    PHASOR_RETURN_IF_ERROR(ReadName<RopeLayout>(
        key, value,
        {{"TOKENS_HEADS", RopeLayout::kTokensHeads}, {"HEADS_TOKENS", RopeLayout::kHeadsTokens}},
        &out->layout));
  } else if (model.kind != ModelKind::kRotary && key == "output_dtype") {
    PHASOR_RETURN_IF_ERROR(ReadDatatype(key, value, &out->output_dtype));
  } else if (model.kind == ModelKind::kEncoding && key == "embedding_scale") {
    PHASOR_RETURN_IF_ERROR(ReadJson(value, path, &out->embedding_scale));
  } else {
    return false;
  }
  return true;
}

absl::Status ReadBiasField(const std::string& key, const Json& value, InferOptions* out) {
  const std::string path = StrCat(kPath, ".", key);
  if (key == "heads") return ReadJson(value, path, &out->heads.emplace());
  if (key == "table") return ReadJson(value, path, &out->table);
  if (key == "num_buckets") return ReadJson(value, path, &out->bias.num_buckets.emplace());
  if (key == "max_distance") return ReadJson(value, path, &out->bias.max_distance.emplace());
  if (key == "bidirectional") return ReadJson(value, path, &out->bias.bidirectional.emplace());
  if (key == "window") return ReadJson(value, path, &out->bias.window);
  return UnknownKey(
      kPath, key,
      {"heads", "table", "num_buckets", "max_distance", "bidirectional", "window", "output_dtype"});
}

}  // namespace

absl::StatusOr<InferOptions> ReadOptions(const Model& model, const InferParameters& parameters) {
  if (parameters.size() > kMaxParameters) {
    return InvalidAt(kPath, parameters.size(), " of them; must be at most ", kMaxParameters);
  }
  InferOptions out;
  Json fields = Json::object();
  // Sorted, so that the same request always gets the same error.
  std::map<std::string_view, const inference::InferParameter*> sorted;
  for (const auto& [key, parameter] : parameters) sorted.emplace(key, &parameter);
  for (const auto& [name, parameter] : sorted) {
    const std::string key(name);
    if (IsOfOtherServers(key)) continue;
    PHASOR_ASSIGN_OR_RETURN(Json value, JsonOf(key, *parameter));
    PHASOR_ASSIGN_OR_RETURN(const bool read, ReadCommon(model, key, value, &out));
    if (read) continue;
    if (model.kind == ModelKind::kBias) {
      PHASOR_RETURN_IF_ERROR(ReadBiasField(key, value, &out));
    } else if (key == "preset" || key == "config_json" || key == "encoder") {
      return InvalidParameter(key, "the model stands for it; must not be set");
    } else {
      fields[key] = std::move(value);
    }
  }
  if (model.kind == ModelKind::kBias) {
    out.bias.preset = model.name;
  } else {
    PHASOR_ASSIGN_OR_RETURN(const Spec overrides, SpecFromJson(fields, kPath));
    out.spec = MergeOverBase(model.spec, overrides);
  }
  return out;
}

}  // namespace phasor::oip
