// SPDX-License-Identifier: Apache-2.0
// Reads a part of a config.json: base, heads, pairing and axes of its layers. Refuses values that
// contradict each other.
#include "kernels/spec/config_json.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/json.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/config_axes.h"
#include "kernels/spec/config_heads.h"
#include "kernels/spec/config_keys.h"
#include "kernels/spec/config_layers.h"
#include "kernels/spec/config_models.h"
#include "kernels/spec/config_rope.h"
#include "kernels/spec/config_section.h"

namespace phasor {
namespace {

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";

// What of a layer decides about its spec.
using LayerKey = std::tuple<std::string, std::optional<double>, bool, std::optional<int64_t>>;

// Reads one part of a configuration. Threads: one thread at a time.
class ConfigReader {
 public:
  // Borrows all of them.
  ConfigReader(const ConfigSection& section, const Spec& user, std::string_view path)
      : section_(section), user_(user), spec_path_(path), generic_(section.known == nullptr) {}

  // What must hold for the configuration as a whole.
  absl::Status Check() const {
    PHASOR_RETURN_IF_ERROR(CheckConfigKeys(in_, model_, generic_));
    return CheckPerLayerConfig(in_, model_, user_.head_dim.has_value());
  }

  // The spec of the chosen layers; nullopt: they do not rotate.
  absl::StatusOr<std::optional<Spec>> ReadChosen() {
    PHASOR_RETURN_IF_ERROR(Check());
    PHASOR_ASSIGN_OR_RETURN(ConfigLayer layer, ChooseLayer(in_, model_, layer_type(), spec_path_));
    if (!layer.rotates) return std::nullopt;
    PHASOR_ASSIGN_OR_RETURN(const auto width, WidthOf(in_, layer));
    return ReadLayer(std::move(layer), width);
  }

  // The spec of `layer`, which rotates, and whose heads have that width in per_layer_config. To be
  // called once.
  absl::StatusOr<Spec> ReadLayer(ConfigLayer layer, std::optional<int64_t> width) {
    layer_ = std::move(layer);
    layer_width_ = width;
    PHASOR_RETURN_IF_ERROR(ReadRope());
    PHASOR_RETURN_IF_ERROR(ReadTheta());
    PHASOR_RETURN_IF_ERROR(ReadHeads());
    PHASOR_RETURN_IF_ERROR(ReadPairing());
    PHASOR_RETURN_IF_ERROR(ReadConfigAxes(section_, rope_, user_, spec_path_, &out_));
    out_.kind = SpecKind::kRotary;
    out_.family = FrequencyFamily::kGeometric;
    if (layer_.scaled) out_.rope_scaling = rope_.scaling;
    if (model_.backwards) PHASOR_RETURN_IF_ERROR(TurnBackwards());
    out_.parity = model_.parity;
    return std::move(out_);
  }

  // Every layer of the model. `kinds`: so many kinds more may be read; it is lowered.
  absl::StatusOr<ConfigLayerSpecs> ReadAll(size_t* kinds) const;

  absl::StatusOr<Spec> Run() {
    PHASOR_ASSIGN_OR_RETURN(std::optional<Spec> spec, ReadChosen());
    if (spec.has_value()) return *std::move(spec);
    if (layer_type().empty()) {
      return Invalid(model_.switch_key, "must be ", model_.switch_value.dump(),
                     "; otherwise no layer of model_type ", model_.model_type, " rotates");
    }
    return InvalidSpec("layer_type", Shown(layer_type()), ", whose layers model_type ",
                       model_.model_type, " does not rotate; must be of others or not set");
  }

 private:
  template <typename... T>
  absl::Status Invalid(std::string_view key, const T&... message) const {
    return InvalidAt(in_.PathOf(key), message...);
  }
  template <typename... T>
  absl::Status InvalidSpec(std::string_view field, const T&... message) const {
    return phasor::Invalid(spec_path_, ".", field, ": ", message...);
  }

  std::string_view layer_type() const {
    return user_.layer_type.has_value() ? std::string_view(*user_.layer_type) : "";
  }
  const ConfigKind& kind() const { return *layer_.kind; }

  absl::StatusOr<std::optional<int64_t>> WidthOf(const JsonObject& in,
                                                 const ConfigLayer& layer) const {
    if (user_.head_dim.has_value()) return std::nullopt;
    return PerLayerHeadDim(in, layer, spec_path_);
  }

  // Reads the dictionary (rope_parameters or rope_scaling) that applies.
  absl::Status ReadRope() {
    PHASOR_RETURN_IF_ERROR(in_.Read("max_position_embeddings", &lengths_.max_position_embeddings));
    PHASOR_RETURN_IF_ERROR(
        in_.Read("original_max_position_embeddings", &lengths_.original_max_position_embeddings));
    const Json* const now = in_.Find("rope_parameters");
    const Json* const old = in_.Find("rope_scaling");
    if (now != nullptr && old != nullptr && *now != *old) {
      return Invalid("rope_scaling", "differs from rope_parameters; must be equal or absent");
    }
    const char* const key = now != nullptr ? "rope_parameters" : "rope_scaling";
    const Json* const value = now != nullptr ? now : old;
    if (value != nullptr && !value->is_object())
      return WrongJson(in_.PathOf(key), *value, "an object");
    own_dictionary_ = value != nullptr && std::any_of(value->begin(), value->end(),
                                                      [](const Json& v) { return v.is_object(); });
    dictionary_ = value != nullptr && !value->empty();
    PHASOR_RETURN_IF_ERROR(CheckDictionary(now, own_dictionary_ && now == nullptr));
    if (own_dictionary_) return ReadNested(JsonObject(*value, in_.PathOf(key)));
    if (dictionary_) return ReadFlat(key, *value);
    PHASOR_RETURN_IF_ERROR(CheckLayerType(false));
    if (kind().rope.is_null()) return absl::OkStatus();
    PHASOR_ASSIGN_OR_RETURN(
        rope_, ReadConfigRope(JsonObject(kind().rope, in_.PathOf(key)), model_, lengths_));
    rope_.rope_theta.reset();  // kind().theta, unless a key says another
    if (!kind().partial_keys.empty() && in_.Find(kind().partial_keys[0]) != nullptr) {
      rope_.partial_rotary_factor.reset();
    }
    return absl::OkStatus();
  }

  // Refuses dictionaries that mean something else to transformers. An empty rope_parameters
  // replaces that of the class. rope_scaling is one dictionary, so those of each kind in it are
  // ignored.
  absl::Status CheckDictionary(const Json* now, bool nested_under_old_name) const {
    const ConfigKind& one = kind();
    const bool replaces =
        !one.rope.is_null() || one.partial_beside_dictionary > 0 || one.theta_beside_scaling > 0;
    if (now != nullptr && now->empty() && replaces) {
      return Invalid("rope_parameters", "empty; must have values or be absent");
    }
    if (nested_under_old_name && model_.nested()) {
      return Invalid("rope_scaling", "has a dictionary for each kind of layers; must be called ",
                     "rope_parameters then");
    }
    return absl::OkStatus();
  }

  // Reads one dictionary for all layers. In models whose two kinds of layers have different rotary
  // embeddings, transformers reads it only under its older name, rope_scaling, and for most of
  // these models applies it to full_attention layers only.
  absl::Status ReadFlat(std::string_view key, const Json& value) {
    const bool any = std::any_of(model_.kinds.begin(), model_.kinds.end(),
                                 [](const ConfigKind& one) { return one.scales; });
    const bool reads_key = key != "rope_parameters" || model_.flat_scaling_only;
    if (model_.nested() && !(reads_key && any)) {
      return Invalid(key, "one dictionary for all layers is nothing that model_type ",
                     model_.model_type, " reads; must hold one for ", KindNames(" and one for "));
    }
    PHASOR_ASSIGN_OR_RETURN(ConfigRope rope,
                            ReadConfigRope(JsonObject(value, in_.PathOf(key)), model_, lengths_));
    if (model_.flat_scaling_only) PHASOR_RETURN_IF_ERROR(KeepScalingOnly(key, &rope));
    const bool scales = rope.proportional || rope.scaling != RopeScaling();
    if (!any && (scales || rope.rope_theta.has_value())) {
      return Invalid(key, "is nothing that model_type ", model_.model_type,
                     " reads; must be absent");
    }
    PHASOR_RETURN_IF_ERROR(CheckLayerType(scales || rope.rope_theta.has_value()));
    if (generic_ && scales && user_.rope_scaling == RopeScaling() && !IsFull() && Lists(kFull) &&
        Lists(kSliding)) {
      return Invalid(key, "may be for ", kFull, " layers alone where the model_type is not known;",
                     " must be beside layer_type ", kFull, " or the spec's own rope_scaling");
    }
    if (!kind().scales) return absl::OkStatus();
    rope_ = std::move(rope);
    auto* const yarn = std::get_if<YarnScaling>(&rope_.scaling);
    if (yarn != nullptr && !yarn->attention_factor.has_value() &&
        kind().yarn_attention_factor > 0) {
      yarn->attention_factor = kind().yarn_attention_factor;
    }
    return absl::OkStatus();
  }

  // Removes what the class does not read. It must not contradict what the class reads instead.
  absl::Status KeepScalingOnly(std::string_view dictionary, ConfigRope* rope) const {
    const ConfigKind& first = model_.kinds[0];
    const std::tuple<const char*, std::optional<double>*, double> unread[] = {
        {"rope_theta", &rope->rope_theta, first.theta},
        {"partial_rotary_factor", &rope->partial_rotary_factor, first.partial}};
    for (const auto& [key, said, by_default] : unread) {
      std::optional<double> beside;
      PHASOR_RETURN_IF_ERROR(in_.Read(key, &beside));
      if (said->value_or(beside.value_or(by_default)) != beside.value_or(by_default)) {
        return Invalid(StrCat(dictionary, ".", key), **said, " is nothing that model_type ",
                       model_.model_type, " reads; must be beside ", dictionary);
      }
      said->reset();
    }
    return absl::OkStatus();
  }

  std::string KindNames(const char* between) const {
    std::vector<std::string> names;
    for (const ConfigKind& one : model_.kinds) names.push_back(one.name);
    return absl::StrJoin(names, between);
  }
  // The names of layers that have these kinds.
  std::string LayerNames() const {
    std::vector<std::string> names;
    for (const ConfigKind& one : model_.kinds) {
      if (one.layer_types.empty()) names.push_back(one.name);
      names.insert(names.end(), one.layer_types.begin(), one.layer_types.end());
    }
    return absl::StrJoin(names, " or ");
  }

  bool IsFull() const { return layer_.name == kFull; }

  // Whether layer_types lists a layer of this kind.
  bool Lists(std::string_view name) const {
    const Json* const listed = in_.Find("layer_types");
    return listed != nullptr && listed->is_array() &&
           std::find(listed->begin(), listed->end(), Json(name)) != listed->end();
  }

  // Reads the dictionary of layer_type from one that has a dictionary per kind of layer.
  absl::Status ReadNested(const JsonObject& kinds) {
    constexpr size_t kListedNames = 10;
    std::string names;
    size_t count = 0;
    for (const auto& [key, value] : kinds.json().items()) {
      if (!value.is_null() && !value.is_object()) {
        return WrongJson(kinds.PathOf(key), value, "an object, as what stands beside it");
      }
      if (value.is_null() || ++count > kListedNames) continue;
      names += StrCat(count == 1 ? "" : ", ", Shown(key));
    }
    if (count > kListedNames) names += ", ...";
    const std::string& name =
        model_.nested() && model_.Find(layer_.name) != nullptr ? kind().name : layer_.name;
    const Json* const chosen = kinds.Find(name);
    if (chosen == nullptr) {
      return InvalidSpec("layer_type", layer_.name.empty() ? "not set" : Shown(layer_.name),
                         "; must be one of ", names, " (", kinds.path(), ")");
    }
    PHASOR_ASSIGN_OR_RETURN(
        rope_, ReadConfigRope(JsonObject(*chosen, kinds.PathOf(name)), model_, lengths_));
    return absl::OkStatus();
  }

  // Checks layer_type when there is no dictionary per kind of layer. A model with two rotary
  // embeddings needs it; other models accept only kinds that their layer_types lists.
  // `differ`: some layers have a base or a scaling of their own.
  absl::Status CheckLayerType(bool differ) const {
    const std::string& name = layer_.name;
    if (model_.nested()) {
      const bool same =
          name.empty() && !differ &&
          std::all_of(model_.kinds.begin(), model_.kinds.end(), [&](const ConfigKind& one) {
            return one.theta == kind().theta && one.rope == kind().rope &&
                   (one.theta_keys.empty() || one.theta_keys == model_.kinds[0].theta_keys);
          });
      if (model_.Find(name) != nullptr || same) return absl::OkStatus();
      return InvalidSpec("layer_type", name.empty() ? "not set" : Shown(name), "; must be ",
                         LayerNames(), " for model_type ", model_.model_type);
    }
    if (name.empty() || layer_.index.has_value() || Lists(name)) return absl::OkStatus();
    return InvalidSpec("layer_type", Shown(name), " is not in ", in_.PathOf("layer_types"),
                       "; must not be set where all layers have one rotary embedding");
  }

  // Stores `value`, which `key` has, in `found`. Fails if another key has set a different value.
  absl::Status Agree(std::string_view key, const std::optional<double>& value,
                     std::optional<double>* found) const {
    if (!value.has_value()) return absl::OkStatus();
    if (found->has_value() && **found != *value) {
      return Invalid(key, *value, " contradicts ", **found, " of another key; must be the same");
    }
    *found = value;
    return absl::OkStatus();
  }

  absl::Status ReadTheta() {
    std::optional<double> theta = rope_.rope_theta;
    // A dictionary for this kind of layer takes precedence over the keys for all layers.
    if (!(own_dictionary_ && theta.has_value())) {
      for (const std::string& key : kind().theta_keys) {
        std::optional<double> value;
        PHASOR_RETURN_IF_ERROR(in_.Read(key, &value));
        if (kind().only_beside_scaling) PHASOR_RETURN_IF_ERROR(CheckBeside(key, value));
        PHASOR_RETURN_IF_ERROR(Agree(key, value, &theta));
      }
      if (kind().theta_keys.empty()) {
        PHASOR_RETURN_IF_ERROR(own_dictionary_ ? CheckOwnBase() : CheckOneBase());
      }
      const bool beside = dictionary_ && kind().theta_beside_scaling > 0;
      const double fallback = beside ? kind().theta_beside_scaling : kind().theta;
      if (!theta.has_value() && fallback > 0) theta = fallback;
    }
    if (layer_.theta.has_value()) theta = layer_.theta;
    if (theta.has_value()) PHASOR_RETURN_IF_ERROR(CheckAttentionBase(*theta));
    if (!theta.has_value() && !user_.rope_theta.has_value()) {
      return Invalid("rope_theta", "not set; must be given where the model_type is not known");
    }
    out_.rope_theta = theta;
    return absl::OkStatus();
  }

  // The class of some models has a dictionary, base included, which the key alone does not change.
  absl::Status CheckBeside(std::string_view key, const std::optional<double>& value) const {
    if (dictionary_ || value.value_or(kind().theta) == kind().theta ||
        user_.rope_theta.has_value()) {
      return absl::OkStatus();
    }
    return Invalid(key, *value, ", but model_type ", model_.model_type, " has ", kind().theta,
                   " where there is no rope_scaling; must be beside one, or in rope_parameters");
  }

  // A dictionary without a base. It replaces that of the class, whose base is gone then:
  // transformers fails, or takes one base for all kinds.
  absl::Status CheckOwnBase() const {
    if (user_.rope_theta.has_value() || SomeKindReadsTheta()) return absl::OkStatus();
    return Invalid(StrCat("rope_parameters.", kind().name, ".rope_theta"),
                   "not set; must be given there or as the spec's own rope_theta");
  }

  bool SomeKindReadsTheta() const {
    return std::any_of(model_.kinds.begin(), model_.kinds.end(), [](const ConfigKind& one) {
      return std::find(one.theta_keys.begin(), one.theta_keys.end(), "rope_theta") !=
             one.theta_keys.end();
    });
  }

  // For sliding_attention layers of Olmo 3, transformers uses the default base whatever the file
  // says; other releases use the file's base. So the two must agree.
  absl::Status CheckOneBase() const {
    // Otherwise the key was compared with the class's own base.
    if (!SomeKindReadsTheta()) return absl::OkStatus();
    std::optional<double> said;
    PHASOR_RETURN_IF_ERROR(in_.Read("rope_theta", &said));
    if (said.value_or(kind().theta) == kind().theta || user_.rope_theta.has_value()) {
      return absl::OkStatus();
    }
    return Invalid("rope_theta", *said, ", but ", kind().name, " layers have ", kind().theta,
                   " in transformers ", ConfigModelsVersion(),
                   "; must be beside the spec's own rope_theta for them");
  }

  // DBRX's files give the base in attn_config. transformers does not read it there.
  absl::Status CheckAttentionBase(double theta) const {
    const Json* const attention = in_.Find("attn_config");
    if (attention == nullptr || !attention->is_object() || user_.rope_theta.has_value()) {
      return absl::OkStatus();
    }
    std::optional<double> said;
    PHASOR_RETURN_IF_ERROR(
        JsonObject(*attention, in_.PathOf("attn_config")).Read("rope_theta", &said));
    if (said.value_or(theta) == theta) return absl::OkStatus();
    return Invalid("attn_config.rope_theta", *said, ", but transformers ", ConfigModelsVersion(),
                   " does not read it there and has ", theta,
                   "; must be beside the spec's own rope_theta");
  }

  absl::Status ReadHeads() {
    return ReadConfigHeads(
        {in_, model_, kind(), rope_, user_, layer_width_, dictionary_, own_dictionary_}, &out_);
  }

  absl::Status ReadPairing() {
    std::optional<bool> interleave;
    PHASOR_RETURN_IF_ERROR(in_.Read("rope_interleave", &interleave));
    if (user_.pairing.has_value()) return absl::OkStatus();
    if (model_.rope_interleave && IsNull(in_, "rope_interleave")) {
      return Invalid("rope_interleave",
                     "null, which transformers takes for false; must be true, false or absent");
    }
    const bool split = !interleave.value_or(true);
    out_.pairing = split ? Pairing::kHalfSplit : model_.pairing;
    out_.pairing_out = split ? Pairing::kHalfSplit : model_.pairing_out;
    return absl::OkStatus();
  }

  // Of the two factors of positions, sets the one that the user does not set.
  absl::Status TurnBackwards() {
    if (user_.axes_position_scale.empty()) {
      out_.axes_position_scale.assign(
          static_cast<size_t>(std::clamp(user_.axes.value_or(1), 1, kMaxAxes)), -1);
      return absl::OkStatus();
    }
    out_.position_scale = -1;
    if (!user_.position_scale.has_value()) return absl::OkStatus();
    return InvalidSpec("axes_position_scale", "set beside position_scale; must be one of the two ",
                       "for model_type ", model_.model_type, ", which turns backwards");
  }

  const ConfigSection& section_;
  const Spec& user_;
  const std::string_view spec_path_;
  const JsonObject& in_ = section_.in;  // the part of the configuration that is read
  const ConfigModel& model_ = section_.model();
  const bool generic_;  // the model_type is not known
  ConfigLayer layer_;
  std::optional<int64_t> layer_width_;  // of per_layer_config
  bool dictionary_ = false;             // the file has a dictionary
  bool own_dictionary_ = false;         // the file has a dictionary per kind of layer
  ConfigLengths lengths_;
  ConfigRope rope_;
  Spec out_;
};

absl::StatusOr<ConfigLayerSpecs> ConfigReader::ReadAll(size_t* kinds) const {
  PHASOR_RETURN_IF_ERROR(Check());
  // A stranger's file may have many other keys, which would be searched for every layer.
  const Json lean = KeysAboutLayers(in_, model_);
  const JsonObject about(lean, in_.path());
  PHASOR_ASSIGN_OR_RETURN(const int64_t count, ConfigLayerCount(about, model_));
  ConfigLayerSpecs out{.model_type = model_.model_type};
  std::map<LayerKey, size_t> known;
  for (int64_t i = 0; i < count; ++i) {
    PHASOR_ASSIGN_OR_RETURN(ConfigLayer layer,
                            ChooseLayer(about, model_, std::to_string(i), spec_path_));
    ConfigLayerSpecs::Layer& entry = out.layers.emplace_back();
    entry.layer_type = layer.name;
    if (!layer.rotates) continue;
    PHASOR_ASSIGN_OR_RETURN(const auto width, WidthOf(about, layer));
    const auto [found, added] =
        known.emplace(LayerKey(layer.name, layer.theta, layer.scaled, width), out.specs.size());
    entry.spec = found->second;
    if (!added) continue;
    if ((*kinds)-- == 0) {
      return InvalidAt(in_.path(), "layers of more than ", kMaxModelSpecs,
                       " kinds; must be at most that");
    }
    ConfigReader reader(section_, user_, spec_path_);
    PHASOR_ASSIGN_OR_RETURN(out.specs.emplace_back(), reader.ReadLayer(std::move(layer), width));
  }
  return out;
}

}  // namespace

absl::StatusOr<Spec> SpecFromConfigJson(const Spec& user, std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const Json root, ParseConfigJson(user, path));
  PHASOR_ASSIGN_OR_RETURN(const ConfigSection section, ChooseSection(root, user, path));
  return ConfigReader(section, user, path).Run();
}

absl::StatusOr<Json> ParseConfigJson(const Spec& user, std::string_view path) {
  return ParseJson(user.config_json, StrCat(path, ".config_json"));
}

absl::StatusOr<ConfigLayerSpecs> LayersFromConfigJson(const Json& root, const Spec& user,
                                                      std::string_view path, size_t* kinds) {
  PHASOR_ASSIGN_OR_RETURN(const ConfigSection section, ChooseSection(root, user, path));
  return ConfigReader(section, user, path).ReadAll(kinds);
}

}  // namespace phasor
