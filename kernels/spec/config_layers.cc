// SPDX-License-Identifier: Apache-2.0
// Finds the kind of a layer and what a config.json says about it alone.
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
constexpr char kKindsKey[] = "layer_types";
// The keys that give the number of layers; the first one counts.
constexpr const char* kCountKeys[] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers",
                                      "depth"};
// The other keys that are read to choose a layer.
constexpr const char* kLayerKeys[] = {kPerLayerKey,       kKindsKey,
                                      "rope_parameters",  "sliding_window",
                                      "no_rope_layers",   "no_rope_layer_interval",
                                      "layer_rope_theta", "rope_scaling_layers"};
constexpr int64_t kMostLayers = 1024;  // each is chosen by itself

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

// The kind of layer `number` by the model's own list of numbers; empty without one.
absl::StatusOr<std::string> CodedKind(const JsonObject& config, const ConfigModel& model,
                                      int64_t number) {
  if (model.layer_code_key.empty()) return "";
  const Json* const listed = config.Find(model.layer_code_key);
  if (listed == nullptr) return "";
  const std::string path = config.PathOf(model.layer_code_key);
  if (!listed->is_array()) return WrongJson(path, *listed, "a list");
  if (number >= static_cast<int64_t>(listed->size())) {
    return InvalidAt(path, listed->size(), " entries; must have one for layer ", number);
  }
  int64_t code = 0;
  PHASOR_RETURN_IF_ERROR(ReadJson((*listed)[static_cast<size_t>(number)], path, &code));
  const auto found = model.layer_codes.find(code);
  if (found != model.layer_codes.end()) return found->second;
  return InvalidAt(path, code, " for layer ", number, ", which model_type ", model.model_type,
                   " does not have; must be a number of its class, or layer_types be given");
}

// The kind of a layer by the model's pattern. A key may give it another period: then one layer in
// so many, the first or the last, is odd, as in the pattern.
absl::StatusOr<std::string> PatternedKind(const JsonObject& config, const ConfigModel& model,
                                          int64_t number) {
  for (const std::string& key : model.pattern_keys) {
    if (const Json* const given = config.Find(key); given != nullptr && *given != 0) {
      return InvalidAt(config.PathOf(kKindsKey), "not set; must be given beside ", key);
    }
  }
  const std::vector<std::string>& pattern = model.layer_pattern;
  const auto size = static_cast<int64_t>(pattern.size());
  int64_t period = size;
  for (const std::string& key : model.period_keys) {
    std::optional<int64_t> given;
    PHASOR_RETURN_IF_ERROR(config.Read(key, &given));
    period = given.value_or(period);
    if (period < 1) return InvalidAt(config.PathOf(key), period, "; must be at least 1");
  }
  if (period != size) {
    const bool first = pattern.front() != pattern[1];
    const bool odd = number % period == (first ? 0 : period - 1);
    return odd == first ? pattern.front() : pattern.back();
  }
  if (number < static_cast<int64_t>(model.first_layers.size())) {
    return model.first_layers[static_cast<size_t>(number)];
  }
  return pattern[static_cast<size_t>(number % size)];
}

// The kind of a layer of a model whose file lists the numbers of the layers that attend.
absl::StatusOr<std::string> AttendingKind(const JsonObject& config, const ConfigModel& model,
                                          int64_t number) {
  std::optional<std::vector<int64_t>> attending;
  PHASOR_RETURN_IF_ERROR(config.Read(model.attention_list, &attending));
  if (!attending.has_value()) return std::string("linear_attention");
  if (attending->size() > kMostLayers) {
    return InvalidAt(config.PathOf(model.attention_list), attending->size(),
                     " entries; must be at most ", kMostLayers);
  }
  const bool attends = std::find(attending->begin(), attending->end(), number) != attending->end();
  return std::string(attends ? "full_attention" : "linear_attention");
}

// The kind of layer `number`; empty if neither the configuration nor the model lists them.
absl::StatusOr<std::string> KindOfLayer(const JsonObject& config, const ConfigModel& model,
                                        int64_t number) {
  if (!model.last_layer.empty()) {
    PHASOR_ASSIGN_OR_RETURN(const int64_t count, ConfigLayerCount(config, model));
    if (number == count - 1) return model.last_layer;
  }
  std::string kind;
  const bool renamed = !model.kinds_key.empty() && config.Find(model.kinds_key) != nullptr;
  const std::string key = renamed ? model.kinds_key : kKindsKey;
  if (const Json* const listed = config.Find(key); listed != nullptr) {
    const std::string path = config.PathOf(key);
    if (!listed->is_array()) return WrongJson(path, *listed, "a list");
    if (number >= static_cast<int64_t>(listed->size())) {
      return InvalidAt(path, listed->size(), " entries; must have one for layer ", number);
    }
    const Json& entry = (*listed)[static_cast<size_t>(number)];
    PHASOR_RETURN_IF_ERROR(ReadJson(entry, path, &kind));
    return kind;
  }
  PHASOR_ASSIGN_OR_RETURN(kind, CodedKind(config, model, number));
  if (!kind.empty()) return kind;
  if (!model.attention_list.empty()) return AttendingKind(config, model, number);
  if (!model.layer_pattern.empty()) return PatternedKind(config, model, number);
  if (model.still.empty() && !model.nested()) return kind;
  return InvalidAt(config.PathOf(kKindsKey), "not set; must be given since model_type ",
                   model.model_type, " has several kinds of layers");
}

// Whether layers of that kind have attention that rotates. An unknown name is none of this.
bool KindRotates(const JsonObject& config, const ConfigModel& model, const ConfigLayer& layer) {
  const std::string& name = layer.name;
  if (name.empty()) return true;
  const Json* const own = config.Find("rope_parameters");
  if (model.nested() && own != nullptr && own->is_object() && own->contains(name)) {
    return !(*own)[name].is_null();
  }
  if (layer.index.has_value()) {
    if (model.nested() && model.Find(name) == nullptr) return false;
    const bool attends =
        (name.find("attention") != std::string::npos || name.find("hybrid") != std::string::npos) &&
        name != "linear_attention";
    if (!model.nested() && !attends) return false;
  }
  // If the sliding_window of an EXAONE 4 is null, all of its layers rotate.
  const bool windows =
      config.Find("sliding_window") != nullptr || !config.json().contains("sliding_window");
  return !(windows && HoldsKey(model.still, name));
}

// The element of a list with an entry per layer. Without a layer, all elements must be equal.
template <typename T>
absl::Status ReadPerLayer(const JsonObject& config, std::string_view key, const ConfigLayer& layer,
                          std::string_view spec_path, std::optional<T>* out) {
  std::optional<std::vector<T>> list;
  const Json* const value = config.Find(key);
  if (value == nullptr || !value->is_array() || value->empty()) return absl::OkStatus();
  if (layer.index.has_value()) {
    if (*layer.index < static_cast<int64_t>(value->size())) {
      return ReadJson((*value)[static_cast<size_t>(*layer.index)], config.PathOf(key),
                      &out->emplace());
    }
    return InvalidAt(config.PathOf(key), value->size(), " entries; must have one for layer ",
                     *layer.index);
  }
  PHASOR_RETURN_IF_ERROR(config.Read(key, &list));
  for (const T& one : *list) {
    if (one == 0 || one == list->front()) continue;
    if (list->front() == 0) {
      list->front() = one;
      continue;
    }
    return Invalid(spec_path, ".layer_type: not set; must be the number of a layer since ",
                   config.PathOf(key), " differs between layers");
  }
  *out = list->front();
  return absl::OkStatus();
}

// Reads no_rope_layers, which has a 0 for layers that do not rotate.
absl::Status ReadStillLayers(const JsonObject& config, const ConfigModel& model,
                             std::string_view spec_path, ConfigLayer* layer) {
  std::optional<int64_t> turns, interval;
  if (!layer->index.has_value()) return absl::OkStatus();
  if (model.no_rope_from_last) {
    if (config.Find("layer_rope_theta") != nullptr) return absl::OkStatus();
    PHASOR_ASSIGN_OR_RETURN(const int64_t count, ConfigLayerCount(config, model));
    layer->rotates = (count - 1 - *layer->index) % model.no_rope_interval != 0;
    return absl::OkStatus();
  }
  PHASOR_RETURN_IF_ERROR(ReadPerLayer(config, "no_rope_layers", *layer, spec_path, &turns));
  PHASOR_RETURN_IF_ERROR(config.Read("no_rope_layer_interval", &interval));
  const int64_t every = interval.value_or(model.no_rope_interval);
  if (turns.has_value()) {
    layer->rotates = *turns != 0;
  } else if (model.no_rope_interval > 0 && every > 0) {
    layer->rotates = (*layer->index + 1) % every != 0;
  }
  return absl::OkStatus();
}

// Reads layer_rope_theta (0: no rotation) and rope_scaling_layers.
absl::Status ReadLayerLists(const JsonObject& config, const ConfigModel& model,
                            std::string_view spec_path, ConfigLayer* layer) {
  PHASOR_RETURN_IF_ERROR(
      ReadPerLayer(config, "layer_rope_theta", *layer, spec_path, &layer->theta));
  if (layer->theta == 0) layer->rotates = false;
  if (layer->theta == 0 || model.no_rope_from_last) layer->theta.reset();  // there only 0 counts
  std::optional<std::vector<int64_t>> scaled;
  PHASOR_RETURN_IF_ERROR(config.Read("rope_scaling_layers", &scaled));
  if (!scaled.has_value()) return absl::OkStatus();
  if (scaled->size() > kMostLayers) {
    return InvalidAt(config.PathOf("rope_scaling_layers"), scaled->size(),
                     " entries; must be at most ", kMostLayers);
  }
  if (!layer->index.has_value()) {
    PHASOR_ASSIGN_OR_RETURN(const int64_t count, ConfigLayerCount(config, model));
    if (static_cast<int64_t>(scaled->size()) == count) return absl::OkStatus();
    return Invalid(spec_path, ".layer_type: not set; must be the number of a layer beside ",
                   config.PathOf("rope_scaling_layers"));
  }
  layer->scaled = std::find(scaled->begin(), scaled->end(), *layer->index) != scaled->end();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ConfigLayerCount(const JsonObject& config, const ConfigModel& model) {
  std::optional<int64_t> count;
  for (const char* key : kCountKeys) {
    PHASOR_RETURN_IF_ERROR(config.Read(key, &count));
    if (count.has_value()) break;
  }
  const int64_t layers = count.value_or(model.layers);
  if (layers >= 1 && layers <= kMostLayers) return layers;
  return InvalidAt(config.PathOf("num_hidden_layers"),
                   count.has_value() ? StrCat(layers) : "not set", "; must be in [1, ", kMostLayers,
                   "]");
}

absl::StatusOr<ConfigLayer> ChooseLayer(const JsonObject& config, const ConfigModel& model,
                                        std::string_view layer_type, std::string_view spec_path) {
  ConfigLayer layer;
  layer.name = std::string(layer_type);
  int64_t number = 0;
  const char* const end = layer_type.data() + layer_type.size();
  const auto [rest, error] = std::from_chars(layer_type.data(), end, number);
  if (!layer_type.empty() && error == std::errc() && rest == end) {
    PHASOR_ASSIGN_OR_RETURN(const int64_t count, ConfigLayerCount(config, model));
    if (number < 0 || number >= count) {
      return Invalid(spec_path, ".layer_type: ", number, "; must be in [0, ", count - 1, "]");
    }
    layer.index = number;
    PHASOR_ASSIGN_OR_RETURN(layer.name, KindOfLayer(config, model, number));
  }
  const ConfigKind* const found = model.Find(layer.name);
  layer.kind = found != nullptr ? found : model.kinds.data();
  layer.rotates = KindRotates(config, model, layer);
  if (!model.switch_key.empty()) {
    const Json* const given = config.Find(model.switch_key);
    layer.rotates = layer.rotates && given != nullptr && *given == model.switch_value;
  }
  if (layer.rotates) PHASOR_RETURN_IF_ERROR(ReadStillLayers(config, model, spec_path, &layer));
  if (layer.rotates) PHASOR_RETURN_IF_ERROR(ReadLayerLists(config, model, spec_path, &layer));
  return layer;
}

absl::Status CheckPerLayerConfig(const JsonObject& config, const ConfigModel& model,
                                 bool width_is_given) {
  const Json* const layers = config.Find(kPerLayerKey);
  if (layers == nullptr) return absl::OkStatus();
  if (!layers->is_object()) return WrongJson(config.PathOf(kPerLayerKey), *layers, "an object");
  if (layers->size() > kMostLayers) {
    return InvalidAt(config.PathOf(kPerLayerKey), layers->size(), " entries; must be at most ",
                     kMostLayers);
  }
  const bool divided = model.kinds[0].head_dim == 0 && config.Find("head_dim") == nullptr;
  const bool latent = !model.kinds[0].latent.empty();
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
                         (key == "head_dim" && (latent || value.is_null()));
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
                                                       const ConfigLayer& layer,
                                                       std::string_view spec_path) {
  const std::string& layer_type = layer.name;
  const Json* const layers = config.Find(kPerLayerKey);
  const auto has_width = [](const Json& changes) { return changes.contains("head_dim"); };
  if (layers == nullptr || std::none_of(layers->begin(), layers->end(), has_width)) {
    return std::nullopt;
  }
  const Json* const kinds = config.Find(kKindsKey);
  if (kinds == nullptr) {
    return InvalidAt(
        config.PathOf(kPerLayerKey),
        "changes head_dim of layers without layer_types; must be beside the spec's own "
        "head_dim");
  }
  if (!kinds->is_array()) return WrongJson(config.PathOf(kKindsKey), *kinds, "a list");
  const size_t first = std::find(kinds->begin(), kinds->end(), layer_type) - kinds->begin();
  if (first == kinds->size()) {
    return Invalid(
        spec_path, ".layer_type: ", layer_type.empty() ? "not set" : layer_type,
        "; must be one of ", config.PathOf(kKindsKey),
        " where per_layer_config changes head_dim, or the spec must have its own head_dim");
  }
  std::vector<std::optional<int64_t>> widths(kinds->size());
  for (const auto& [key, changes] : layers->items()) {
    PHASOR_ASSIGN_OR_RETURN(const size_t at_layer, LayerOf(config, key, widths.size()));
    if (layer.index.has_value() && static_cast<size_t>(*layer.index) != at_layer) continue;
    const JsonObject at(changes, StrCat(config.PathOf(kPerLayerKey), ".", key));
    PHASOR_RETURN_IF_ERROR(at.Read("head_dim", &widths[at_layer]));
    if (widths[at_layer].value_or(1) < 1) {
      return InvalidAt(at.PathOf("head_dim"), *widths[at_layer], "; must be > 0");
    }
  }
  if (layer.index.has_value()) return widths[static_cast<size_t>(*layer.index)];
  for (size_t i = first; i < kinds->size(); ++i) {
    if ((*kinds)[i] != layer_type || widths[i] == widths[first]) continue;
    return InvalidAt(config.PathOf(kPerLayerKey), "gives ", layer_type, " layers ", first, " and ",
                     i, " heads of different widths; must be beside the spec's own head_dim");
  }
  return widths[first];
}

Json KeysAboutLayers(const JsonObject& config, const ConfigModel& model) {
  Json lean = Json::object();
  const auto take = [&](const std::string& key) {
    const auto found = config.json().find(key);  // null, too: it differs from an absent key
    if (found != config.json().end()) lean[key] = *found;
  };
  for (const char* key : kCountKeys) take(key);
  for (const char* key : kLayerKeys) take(key);
  take(model.kinds_key);
  take(model.attention_list);
  for (const std::string& key : model.period_keys) take(key);
  for (const std::string& key : model.pattern_keys) take(key);
  take(model.switch_key);
  take(model.layer_code_key);
  return lean;
}

}  // namespace phasor
