// SPDX-License-Identifier: Apache-2.0
// Parses the embedded models.json once and finds model_types by name.
#include "kernels/spec/config_models.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/names.h"
#include "kernels/spec/spec_json.h"

namespace phasor {

extern const std::string_view kModelsJson;  // kernels/spec/models.json, see cmake/PhasorEmbed.cmake

namespace {

// Reads a member if it is there.
template <typename T>
absl::Status Take(const JsonObject& json, std::string_view key, T* out) {
  std::optional<T> value;
  PHASOR_RETURN_IF_ERROR(json.Read(key, &value));
  if (value.has_value()) *out = *std::move(value);
  return absl::OkStatus();
}

// Reads the name of an enum's value.
template <typename T>
absl::Status TakeName(const JsonObject& json, std::string_view key, std::initializer_list<T> values,
                      std::optional<T>* out) {
  std::optional<std::string> name;
  PHASOR_RETURN_IF_ERROR(json.Read(key, &name));
  for (const T value : values) {
    if (name == Name(value)) *out = value;
  }
  if (name.has_value() && !out->has_value()) {
    return WrongJson(json.PathOf(key), Json(*name), "a known name");
  }
  return absl::OkStatus();
}

absl::StatusOr<ConfigKind> ReadKind(const JsonObject& json) {
  ConfigKind kind;
  PHASOR_RETURN_IF_ERROR(Take(json, "name", &kind.name));
  PHASOR_RETURN_IF_ERROR(Take(json, "theta", &kind.theta));
  PHASOR_RETURN_IF_ERROR(Take(json, "theta_keys", &kind.theta_keys));
  PHASOR_RETURN_IF_ERROR(Take(json, "only_beside_scaling", &kind.only_beside_scaling));
  PHASOR_RETURN_IF_ERROR(Take(json, "theta_beside_scaling", &kind.theta_beside_scaling));
  PHASOR_RETURN_IF_ERROR(Take(json, "hidden_times", &kind.hidden_times));
  PHASOR_RETURN_IF_ERROR(Take(json, "partial_beside_dictionary", &kind.partial_beside_dictionary));
  PHASOR_RETURN_IF_ERROR(Take(json, "scales", &kind.scales));
  PHASOR_RETURN_IF_ERROR(Take(json, "head_dim_keys", &kind.head_dim_keys));
  PHASOR_RETURN_IF_ERROR(Take(json, "head_dim", &kind.head_dim));
  PHASOR_RETURN_IF_ERROR(Take(json, "hidden_keys", &kind.hidden_keys));
  PHASOR_RETURN_IF_ERROR(Take(json, "hidden", &kind.hidden));
  PHASOR_RETURN_IF_ERROR(Take(json, "heads_keys", &kind.heads_keys));
  PHASOR_RETURN_IF_ERROR(Take(json, "heads", &kind.heads));
  PHASOR_RETURN_IF_ERROR(Take(json, "latent", &kind.latent));
  PHASOR_RETURN_IF_ERROR(Take(json, "partial_keys", &kind.partial_keys));
  PHASOR_RETURN_IF_ERROR(Take(json, "partial_in_dictionary", &kind.partial_in_dictionary));
  PHASOR_RETURN_IF_ERROR(Take(json, "partial", &kind.partial));
  PHASOR_RETURN_IF_ERROR(Take(json, "rotary_dim", &kind.rotary_dim));
  PHASOR_RETURN_IF_ERROR(Take(json, "layer_types", &kind.layer_types));
  PHASOR_RETURN_IF_ERROR(Take(json, "last_lanes", &kind.last_lanes));
  PHASOR_RETURN_IF_ERROR(Take(json, "yarn_attention_factor", &kind.yarn_attention_factor));
  if (const Json* const rope = json.Find("rope")) kind.rope = *rope;
  return kind;
}

absl::Status ReadPairings(const JsonObject& json, ConfigModel* model) {
  std::optional<Pairing> in, out;
  const std::initializer_list<Pairing> pairings = {Pairing::kHalfSplit, Pairing::kInterleaved,
                                                   Pairing::kBlockHalfSplit};
  PHASOR_RETURN_IF_ERROR(TakeName(json, "pairing", pairings, &in));
  PHASOR_RETURN_IF_ERROR(TakeName(json, "pairing_out", pairings, &out));
  model->pairing = in.value_or(Pairing::kHalfSplit);
  model->pairing_out = out.value_or(model->pairing);
  return TakeName(json, "axis_rule",
                  {AxisRule::kAxial, AxisRule::kMropeChunked, AxisRule::kMropeInterleaved,
                   AxisRule::kMropeAlternating, AxisRule::kFrequencyMajor, AxisRule::kList},
                  &model->axis_rule);
}

// Reads "parity": the names of frequency, angle, table and math.
absl::Status ReadRounding(const JsonObject& json, ConfigModel* model) {
  std::vector<std::string> names;
  PHASOR_RETURN_IF_ERROR(Take(json, "parity", &names));
  if (names.empty()) return absl::OkStatus();
  constexpr const char* kStages[] = {"frequency", "angle", "table", "math"};
  Json block = Json::object();
  for (size_t i = 0; i < names.size() && i < std::size(kStages); ++i) block[kStages[i]] = names[i];
  PHASOR_ASSIGN_OR_RETURN(model->parity, ParityFromJson(block.dump()));
  return absl::OkStatus();
}

// Reads "switch": a key and the value with which layers rotate.
absl::Status ReadSwitch(const JsonObject& json, ConfigModel* model) {
  const Json* const given = json.Find("switch");
  if (given == nullptr) return absl::OkStatus();
  const JsonObject in(*given, json.PathOf("switch"));
  PHASOR_RETURN_IF_ERROR(Take(in, "key", &model->switch_key));
  if (const Json* const value = in.Find("value")) model->switch_value = *value;
  return absl::OkStatus();
}

// Reads "layer_codes": a key, and what its numbers stand for.
absl::Status ReadLayerCodes(const JsonObject& json, ConfigModel* model) {
  const Json* const codes = json.Find("layer_codes");
  if (codes == nullptr) return absl::OkStatus();
  const JsonObject in(*codes, json.PathOf("layer_codes"));
  PHASOR_RETURN_IF_ERROR(Take(in, "key", &model->layer_code_key));
  std::vector<std::string> kinds;
  std::vector<int64_t> numbers;
  PHASOR_RETURN_IF_ERROR(Take(in, "kinds", &kinds));
  PHASOR_RETURN_IF_ERROR(Take(in, "numbers", &numbers));
  for (size_t i = 0; i < kinds.size() && i < numbers.size(); ++i) {
    model->layer_codes[numbers[i]] = kinds[i];
  }
  return absl::OkStatus();
}

absl::StatusOr<ConfigModel> ReadModel(const JsonObject& json) {
  ConfigModel model;
  PHASOR_RETURN_IF_ERROR(Take(json, "model_type", &model.model_type));
  PHASOR_RETURN_IF_ERROR(Take(json, "observed", &model.observed));
  PHASOR_RETURN_IF_ERROR(ReadPairings(json, &model));
  PHASOR_RETURN_IF_ERROR(Take(json, "backwards", &model.backwards));
  PHASOR_RETURN_IF_ERROR(Take(json, "rope_scaling", &model.rope_scaling));
  PHASOR_RETURN_IF_ERROR(Take(json, "flat_scaling_only", &model.flat_scaling_only));
  PHASOR_RETURN_IF_ERROR(Take(json, "rope_interleave", &model.rope_interleave));
  PHASOR_RETURN_IF_ERROR(ReadSwitch(json, &model));
  PHASOR_RETURN_IF_ERROR(Take(json, "ntk_alpha", &model.ntk_alpha));
  PHASOR_RETURN_IF_ERROR(Take(json, "mrope_section", &model.mrope_section));
  PHASOR_RETURN_IF_ERROR(Take(json, "axes", &model.axes));
  PHASOR_RETURN_IF_ERROR(Take(json, "dealt", &model.dealt));
  PHASOR_RETURN_IF_ERROR(Take(json, "layers", &model.layers));
  PHASOR_RETURN_IF_ERROR(Take(json, "still", &model.still));
  PHASOR_RETURN_IF_ERROR(Take(json, "layer_lists", &model.layer_lists));
  PHASOR_RETURN_IF_ERROR(Take(json, "no_rope_interval", &model.no_rope_interval));
  PHASOR_RETURN_IF_ERROR(Take(json, "first_layers", &model.first_layers));
  PHASOR_RETURN_IF_ERROR(Take(json, "layer_pattern", &model.layer_pattern));
  PHASOR_RETURN_IF_ERROR(Take(json, "last_layer", &model.last_layer));
  PHASOR_RETURN_IF_ERROR(Take(json, "kinds_key", &model.kinds_key));
  PHASOR_RETURN_IF_ERROR(Take(json, "attention_list", &model.attention_list));
  PHASOR_RETURN_IF_ERROR(Take(json, "no_rope_from_last", &model.no_rope_from_last));
  PHASOR_RETURN_IF_ERROR(Take(json, "period_keys", &model.period_keys));
  PHASOR_RETURN_IF_ERROR(Take(json, "pattern_keys", &model.pattern_keys));
  PHASOR_RETURN_IF_ERROR(ReadLayerCodes(json, &model));
  PHASOR_RETURN_IF_ERROR(ReadRounding(json, &model));
  const Json* const kinds = json.Find("kinds");
  if (kinds == nullptr) {
    PHASOR_ASSIGN_OR_RETURN(ConfigKind all, ReadKind(json));
    model.kinds = {std::move(all)};
    return model;
  }
  for (const Json& kind : *kinds) {
    PHASOR_ASSIGN_OR_RETURN(ConfigKind one, ReadKind(JsonObject(kind, json.PathOf("kinds"))));
    model.kinds.push_back(std::move(one));
  }
  return model;
}

const ConfigTable& AllModels() {
  static const auto& table = *new ConfigTable([] {
    auto read = ConfigTableFromJson(kModelsJson);
    if (!read.ok()) {  // cannot happen: the tests of this build read the data
      std::fprintf(stderr, "kernels/spec/models.json: %s\n", read.status().ToString().c_str());
      std::abort();
    }
    return *std::move(read);
  }());
  return table;
}

}  // namespace

const ConfigKind* ConfigModel::Find(std::string_view kind) const {
  if (!nested()) return kinds.data();
  for (const ConfigKind& one : kinds) {
    const auto& of = one.layer_types;
    if (one.name == kind || std::find(of.begin(), of.end(), kind) != of.end()) return &one;
  }
  return nullptr;
}

absl::StatusOr<ConfigTable> ConfigTableFromJson(std::string_view text) {
  PHASOR_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "models"));
  if (!json.is_object()) return WrongJson("models", json, "an object");
  const JsonObject root(json, "models");
  ConfigTable table;
  PHASOR_RETURN_IF_ERROR(Take(root, "transformers", &table.version));
  for (const char* member : {"parts", "models"}) {
    if (root.Find(member) == nullptr) return WrongJson(root.PathOf(member), Json(), "given");
  }
  for (const auto& [composite, parts] : root.Find("parts")->items()) {
    for (const auto& [part, model_type] : parts.items()) {
      table.parts[composite][part] = model_type.get<std::string>();
    }
  }
  for (const Json& row : *root.Find("models")) {
    if (row.contains("own_fields")) table.own_fields.insert(row["model_type"].get<std::string>());
    if (row.contains("unread")) continue;
    const std::string path = StrCat("models[", table.models.size(), "]");
    PHASOR_ASSIGN_OR_RETURN(ConfigModel model, ReadModel(JsonObject(row, path)));
    table.models.push_back(std::move(model));
  }
  return table;
}

absl::Span<const ConfigModel> ConfigModels() { return AllModels().models; }

bool NeedsOwnFields(std::string_view model_type) {
  return AllModels().own_fields.contains(model_type);
}

ConfigModel GenericConfigModel(bool latent) {
  ConfigModel model;
  ConfigKind all;
  all.theta = 0;
  all.theta_keys = {"rope_theta", "rotary_emb_base"};
  all.head_dim_keys = {"head_dim"};
  all.hidden_keys = {"embed_dim", "hidden_size", "n_embd", "d_model"};
  all.heads_keys = {"num_attention_heads", "num_heads", "n_head", "n_heads"};
  all.partial_keys = {"partial_rotary_factor", "rotary_pct", "rotary_dim"};
  all.partial_in_dictionary = true;
  if (latent) all.latent = {0, 0};
  model.rope_interleave = true;
  model.kinds = {std::move(all)};
  return model;
}

std::string LikelyPairing(std::string_view model_type, bool latent) {
  if (latent) return "likely INTERLEAVED, as in DeepSeek";
  const ConfigModel* best = nullptr;
  size_t longest = 3;
  for (const ConfigModel& model : ConfigModels()) {
    const auto end = std::mismatch(model_type.begin(), model_type.end(), model.model_type.begin(),
                                   model.model_type.end());
    const size_t common = end.first - model_type.begin();
    if (common <= longest) continue;
    longest = common;
    best = &model;
  }
  if (best == nullptr) return "HALF_SPLIT in most models";
  return StrCat("likely ", Name(best->pairing), ", as in ", best->model_type);
}

const std::string& ConfigModelsVersion() { return AllModels().version; }

const ConfigModel* FindConfigModel(std::string_view model_type) {
  const std::vector<ConfigModel>& models = AllModels().models;
  const auto found = std::lower_bound(
      models.begin(), models.end(), model_type,
      [](const ConfigModel& model, std::string_view wanted) { return model.model_type < wanted; });
  return found != models.end() && found->model_type == model_type ? &*found : nullptr;
}

const std::map<std::string, std::string, std::less<>>& ConfigParts(std::string_view model_type) {
  static const auto& none = *new std::map<std::string, std::string, std::less<>>;
  const auto found = AllModels().parts.find(model_type);
  return found == AllModels().parts.end() ? none : found->second;
}

}  // namespace phasor
