// SPDX-License-Identifier: Apache-2.0
// Holds the list of known keys about rotation, and refuses the keys that would be silently ignored.
#include "kernels/spec/config_keys.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor {
namespace {

// A key whose name contains one of these is about rotary embeddings, so it must be a known one.
constexpr std::string_view kTellingParts[] = {"rope",   "rotary",      "theta", "alibi",
                                              "nope",   "base_freq",   "yarn",  "xpos",
                                              "mscale", "position_emb"};
constexpr std::string_view kKnownConfigKeys[] = {
    // Read by config_json.cc, or below.
    "alibi", "attn_rotary_emb", "global_rope_theta", "local_rope_theta", "max_position_embeddings",
    "original_max_position_embeddings", "partial_rotary_factor", "position_embedding_type",
    "qk_nope_head_dim", "qk_rope_head_dim", "rope_interleave", "rope_local_base_freq",
    "rope_parameters", "rope_scaling", "rope_theta", "rotary_dim", "rotary_emb_base", "rotary_pct",
    // These say which layers rotate, or give sizes of other tables. The caller handles both.
    "no_rope_layer_interval", "no_rope_layers", "num_position_embeddings"};

// Keys whose value only confirms what holds anyway.
bool IsHarmlessKey(const std::string& key, const Json& value) {
  return (key == "use_mrope" && value == false) || (key == "rotary" && value == true) ||
         (key == "use_rotary_pos_emb" && value == true);
}

// ModernBERT's "absolute" is left over from BERT; no code reads it.
bool IsRotaryType(std::string_view type, const ConfigModel& model) {
  if (type == "rope_gptj") return model.pairing == Pairing::kInterleaved;
  return type == "rope" || type == "rotary" ||
         (type == "absolute" && model.model_type == "modernbert");
}

// Refuses keys that only other model types read.
absl::Status CheckForeignKeys(const JsonObject& config, const ConfigModel& model, bool generic) {
  const bool gemma3 = model.model_type.substr(0, 6) == "gemma3";
  const bool modernbert = model.model_type.substr(0, 10) == "modernbert";
  const struct {
    const char* key;
    bool used;
  } keys[] = {{"rope_local_base_freq", gemma3},
              {"global_rope_theta", modernbert},
              {"local_rope_theta", modernbert},
              {"rope_theta", !modernbert},
              {"global_head_dim", model.full_head_dim > 0},
              {"qk_rope_head_dim", model.latent},
              {"qk_nope_head_dim", model.latent},
              {"attn_rotary_emb", model.model_type == "bamba"},
              {"rope_interleave", model.latent || generic}};
  for (const auto& [key, used] : keys) {
    if (config.Find(key) == nullptr || used) continue;
    return InvalidAt(config.PathOf(key), "is nothing that model_type ", model.model_type,
                     " reads; must not be set");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsAboutRotation(std::string_view key) {
  return std::any_of(
      std::begin(kTellingParts), std::end(kTellingParts),
      [key](std::string_view part) { return key.find(part) != std::string_view::npos; });
}

absl::Status CheckConfigKeys(const JsonObject& config, const ConfigModel& model, bool generic) {
  for (const auto& [key, value] : config.json().items()) {
    if (value.is_null() || IsHarmlessKey(key, value) || !IsAboutRotation(key)) continue;
    if (std::find(std::begin(kKnownConfigKeys), std::end(kKnownConfigKeys), key) ==
        std::end(kKnownConfigKeys)) {
      return UnknownKey(config.path(), key, kKnownConfigKeys);
    }
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
  return CheckForeignKeys(config, model, generic);
}

}  // namespace phasor
