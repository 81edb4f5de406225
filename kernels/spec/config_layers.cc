// SPDX-License-Identifier: Apache-2.0
// Checks the per_layer_config of a config.json and finds the head width of one kind of layer.
#include "kernels/spec/config_layers.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/config_keys.h"

namespace phasor {
namespace {

constexpr char kPerLayerKey[] = "per_layer_config";

// The keys from which a head's width is computed when no key gives it.
constexpr std::string_view kWidthParts[] = {"embed_dim", "hidden_size",         "n_embd",
                                            "n_head",    "num_attention_heads", "num_heads"};

template <typename Keys>
bool HoldsKey(const Keys& keys, std::string_view key) {
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

// The index of the layer that a key of per_layer_config names: "5", "05".
absl::StatusOr<size_t> LayerOf(const JsonObject& config, const std::string& key, size_t layers) {
  size_t layer = 0;
  const char* const end = key.data() + key.size();
  const auto [rest, error] = std::from_chars(key.data(), end, layer);
  if (error == std::errc() && rest == end && layer < layers) return layer;
  return InvalidAt(config.PathOf(kPerLayerKey), "\"", Shown(key),
                   "\" is no layer; must be one of the ", layers, " of layer_types");
}

}  // namespace

absl::Status CheckPerLayerConfig(const JsonObject& config, const ConfigModel& model,
                                 bool width_is_given) {
  const Json* const layers = config.Find(kPerLayerKey);
  if (layers == nullptr) return absl::OkStatus();
  if (!layers->is_object()) return WrongJson(config.PathOf(kPerLayerKey), *layers, "an object");
  const bool divided = model.head_dim == 0 && config.Find("head_dim") == nullptr;
  for (const auto& [layer, changes] : layers->items()) {
    const JsonObject at(changes, StrCat(config.PathOf(kPerLayerKey), ".", Shown(layer)));
    if (!changes.is_object()) return WrongJson(at.path(), changes, "an object");
    for (const auto& [key, value] : changes.items()) {
      if (IsAboutRotation(key)) {
        return InvalidAt(
            config.PathOf(kPerLayerKey), "changes ", Shown(key),
            ", which is not read for single layers; must be absent: set what they have "
            "in the spec's own fields");
      }
      const bool width = HoldsKey(kHeadDimAliases, key) ||
                         (divided && HoldsKey(kWidthParts, key)) ||
                         (key == "head_dim" && (model.latent || value.is_null()));
      if (width && !width_is_given) {
        return InvalidAt(config.PathOf(kPerLayerKey), "changes ", key,
                         ", which is not read for single layers; must be beside the spec's own "
                         "head_dim");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> PerLayerHeadDim(const JsonObject& config,
                                                       std::string_view layer_type,
                                                       std::string_view spec_path) {
  const Json* const layers = config.Find(kPerLayerKey);
  const auto has_width = [](const Json& changes) { return changes.contains("head_dim"); };
  if (layers == nullptr || std::none_of(layers->begin(), layers->end(), has_width)) {
    return std::nullopt;
  }
  std::optional<std::vector<std::string>> kinds;
  PHASOR_RETURN_IF_ERROR(config.Read("layer_types", &kinds));
  if (!kinds.has_value()) {
    return InvalidAt(
        config.PathOf(kPerLayerKey),
        "changes head_dim of layers without layer_types; must be beside the spec's own "
        "head_dim");
  }
  if (!HoldsKey(*kinds, layer_type)) {
    return Invalid(
        spec_path, ".layer_type: ", layer_type.empty() ? "not set" : layer_type,
        "; must be one of ", config.PathOf("layer_types"),
        " where per_layer_config changes head_dim, or the spec must have its own head_dim");
  }
  std::vector<std::optional<int64_t>> widths(kinds->size());
  for (const auto& [key, changes] : layers->items()) {
    PHASOR_ASSIGN_OR_RETURN(const size_t layer, LayerOf(config, key, widths.size()));
    const JsonObject at(changes, StrCat(config.PathOf(kPerLayerKey), ".", key));
    PHASOR_RETURN_IF_ERROR(at.Read("head_dim", &widths[layer]));
    if (widths[layer].value_or(1) < 1) {
      return InvalidAt(at.PathOf("head_dim"), *widths[layer], "; must be > 0");
    }
  }
  const size_t first = std::find(kinds->begin(), kinds->end(), layer_type) - kinds->begin();
  for (size_t i = first; i < kinds->size(); ++i) {
    if ((*kinds)[i] != layer_type || widths[i] == widths[first]) continue;
    return InvalidAt(config.PathOf(kPerLayerKey), "gives ", layer_type, " layers ", first, " and ",
                     i, " heads of different widths; must be beside the spec's own head_dim");
  }
  return widths[first];
}

}  // namespace phasor
