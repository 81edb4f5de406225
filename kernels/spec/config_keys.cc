// SPDX-License-Identifier: Apache-2.0
// Holds the list of known keys about rotation, and refuses the keys that would be silently ignored.
#include "kernels/spec/config_keys.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor {
namespace {

// A key whose name contains one of these is about rotary embeddings, so it must be a known one.
constexpr std::string_view kTellingParts[] = {"rope",   "rotary",      "theta", "alibi",
                                              "nope",   "base_freq",   "yarn",  "xpos",
                                              "mscale", "position_emb"};
// Keys that say which layers rotate, are about other rotations than that of the layer (the indexer
// of sparse attention), give sizes of other tables, or are checked below.
constexpr std::string_view kNeutralKeys[] = {"alibi",
                                             "indexer_rope_interleave",
                                             "no_rope_layers",
                                             "num_position_embeddings",
                                             "no_rope_layer_interval",
                                             "position_embedding_type",
                                             "qk_nope_head_dim"};
// Keys that only some models read; a file of another model may not have them.
constexpr std::string_view kOthersKeys[] = {"attn_rotary_emb",      "compress_rope_theta",
                                            "global_rope_theta",    "layer_rope_theta",
                                            "local_rope_theta",     "partial_rotary_factor",
                                            "qk_rope_head_dim",     "rope_interleave",
                                            "rope_local_base_freq", "rope_parameters",
                                            "rope_scaling",         "rope_scaling_layers",
                                            "rope_theta",           "rotary_dim",
                                            "rotary_emb_base",      "rotary_embedding_base",
                                            "rotary_pct",           "swa_rope_theta",
                                            "use_mem_rope"};

// Keys whose value only confirms what holds anyway.
bool IsHarmlessKey(const std::string& key, const Json& value, const ConfigModel& model) {
  const bool half_split = model.pairing == Pairing::kHalfSplit;
  return (key == "use_mrope" && value == false) || (key == "rotary" && value == true) ||
         (key == "use_rotary_pos_emb" && value == true) ||
         (key == "rotary_value" && value == false) ||
         ((key == "rope_interleaved" || key == "rope_interleave") && value == !half_split &&
          !model.rope_interleave) ||
         (model.nested() && key == "rope_theta" && value == model.kinds.front().theta) ||
         (model.nested() && key == "swa_rope_theta" && value == model.kinds.back().theta);
}

// ModernBERT's "absolute" is left over from BERT; no code reads it.
bool IsRotaryType(std::string_view type, const ConfigModel& model) {
  if (type == "rope_gptj") return model.pairing == Pairing::kInterleaved;
  return type == "rope" || type == "rotary" ||
         (type == "absolute" && model.model_type == "modernbert");
}

bool IsAmong(const std::vector<std::string>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Whether the model's class reads the key.
bool Reads(const ConfigModel& model, std::string_view key) {
  if (key == "rope_interleave") return model.rope_interleave;
  if (key == "attn_rotary_emb") return model.model_type == "bamba";
  if (key == model.switch_key || IsAmong(model.layer_lists, key)) return true;
  for (const ConfigKind& kind : model.kinds) {
    if (IsAmong(kind.theta_keys, key) || IsAmong(kind.partial_keys, key)) return true;
    if (key == "qk_rope_head_dim" && !kind.latent.empty()) return true;
    // A share beside the dictionary is checked against what the class has.
    if (key == "partial_rotary_factor" &&
        kind.partial_keys != std::vector<std::string>{"rotary_pct"})
      return true;
    if (key == "rotary_dim") return true;
  }
  return key == "rope_parameters" || (key == "rope_scaling" && model.rope_scaling);
}

absl::Status CheckKey(const JsonObject& config, const ConfigModel& model, const std::string& key,
                      bool generic) {
  const auto among = [&key](const auto& keys) {
    return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
  };
  const bool size = key.ends_with("max_position_embeddings");  // of a table or a window
  if (size || among(kNeutralKeys) || Reads(model, key)) return absl::OkStatus();
  if (!generic && among(kOthersKeys)) {
    return InvalidAt(config.PathOf(key), "is nothing that model_type ", model.model_type,
                     " reads; must not be set");
  }
  std::vector<std::string_view> known(std::begin(kNeutralKeys), std::end(kNeutralKeys));
  for (const std::string_view other : kOthersKeys) {
    if (Reads(model, other)) known.push_back(other);
  }
  return UnknownKey(config.path(), key, known);
}

// Refuses widths of heads that only other models read.
absl::Status CheckWidths(const JsonObject& config, const ConfigModel& model) {
  if (config.Find("global_head_dim") == nullptr) return absl::OkStatus();
  for (const ConfigKind& kind : model.kinds) {
    if (IsAmong(kind.head_dim_keys, "global_head_dim")) return absl::OkStatus();
  }
  return InvalidAt(config.PathOf("global_head_dim"), "is nothing that model_type ",
                   model.model_type, " reads; must not be set");
}

}  // namespace

bool IsNull(const JsonObject& config, std::string_view key) {
  const auto member = config.json().find(std::string(key));
  return member != config.json().end() && member->is_null();
}

bool IsAboutRotation(std::string_view key) {
  return std::any_of(
      std::begin(kTellingParts), std::end(kTellingParts),
      [key](std::string_view part) { return key.find(part) != std::string_view::npos; });
}

absl::Status CheckConfigKeys(const JsonObject& config, const ConfigModel& model, bool generic) {
  for (const auto& [key, value] : config.json().items()) {
    if (value.is_null() || IsHarmlessKey(key, value, model) || !IsAboutRotation(key)) continue;
    PHASOR_RETURN_IF_ERROR(CheckKey(config, model, key, generic));
  }
  std::optional<bool> alibi;
  PHASOR_RETURN_IF_ERROR(config.Read("alibi", &alibi));
  if (alibi.value_or(false)) {
    return InvalidAt(config.PathOf("alibi"), "true; must be false: no rotary embedding");
  }
  std::optional<std::string> type;
  PHASOR_RETURN_IF_ERROR(config.Read("position_embedding_type", &type));
  if (type.has_value() && !IsRotaryType(*type, model)) {
    return InvalidAt(config.PathOf("position_embedding_type"), Shown(*type),
                     "; must be rope or rotary");
  }
  return CheckWidths(config, model);
}

}  // namespace phasor
