// SPDX-License-Identifier: Apache-2.0
// Reads one config.json: chooses the part and the model_type, then reads base, heads, pairing and
// axes, and refuses values that contradict each other.
#include "kernels/spec/config_json.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "kernels/base/json.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/config_heads.h"
#include "kernels/spec/config_keys.h"
#include "kernels/spec/config_layers.h"
#include "kernels/spec/config_models.h"
#include "kernels/spec/config_rope.h"

namespace phasor {
namespace {

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";

// Reads one configuration. Borrows the user's spec. Threads: one thread at a time.
class ConfigReader {
 public:
  ConfigReader(const Spec& user, std::string_view path)
      : user_(user),
        sub_config_(user.sub_config.value_or("")),
        spec_path_(path),
        root_path_(StrCat(path, ".config_json")) {}

  // Finds the part of the configuration and the model, and calls `then` with both.
  template <typename Then>
  auto With(Then&& then) -> decltype(then()) {
    PHASOR_ASSIGN_OR_RETURN(const Json root, ParseJson(user_.config_json, root_path_));
    if (!root.is_object()) return WrongJson(root_path_, root, "an object");
    PHASOR_RETURN_IF_ERROR(JsonObject(root, root_path_).Read("model_type", &whole_type_));
    PHASOR_ASSIGN_OR_RETURN(const JsonObject section, ChooseSection(root));
    in_ = &section;
    PHASOR_RETURN_IF_ERROR(FindModel());
    return then();
  }

  // The layers of the model, as layer_type chooses them: by number.
  absl::StatusOr<int64_t> CountLayers() const { return ConfigLayerCount(*in_, *model_); }

  // The spec of the chosen layers; nullopt: they do not rotate.
  absl::StatusOr<std::optional<Spec>> ReadLayers() {
    PHASOR_RETURN_IF_ERROR(CheckConfigKeys(*in_, *model_, generic_));
    PHASOR_RETURN_IF_ERROR(CheckPerLayerConfig(*in_, *model_, user_.head_dim.has_value()));
    PHASOR_ASSIGN_OR_RETURN(layer_,
                            ChooseLayer(*in_, *model_, user_.layer_type.value_or(""), spec_path_));
    if (!layer_.rotates) return std::nullopt;
    PHASOR_RETURN_IF_ERROR(ReadRope());
    PHASOR_RETURN_IF_ERROR(ReadTheta());
    PHASOR_RETURN_IF_ERROR(ReadHeads());
    PHASOR_RETURN_IF_ERROR(ReadPairing());
    PHASOR_RETURN_IF_ERROR(ReadAxes());
    out_.kind = SpecKind::kRotary;
    out_.family = FrequencyFamily::kGeometric;
    if (layer_.scaled) out_.rope_scaling = rope_.scaling;
    if (model_->backwards) out_.position_scale = -1;
    return std::move(out_);
  }

  absl::StatusOr<Spec> Run() {
    PHASOR_ASSIGN_OR_RETURN(std::optional<Spec> spec, ReadLayers());
    if (spec.has_value()) return *std::move(spec);
    if (layer_.said.empty()) {
      return Invalid(model_->switch_key, "not true; must be for layers of model_type ",
                     model_->model_type, " that rotate");
    }
    return InvalidSpec("layer_type", Shown(layer_.said), ", whose layers model_type ",
                       model_->model_type, " does not rotate; must be of others or not set");
  }

 private:
  template <typename... T>
  absl::Status Invalid(std::string_view key, const T&... message) const {
    return absl::InvalidArgumentError(StrCat(in_->PathOf(key), ": ", message...));
  }
  template <typename... T>
  absl::Status InvalidSpec(std::string_view field, const T&... message) const {
    return absl::InvalidArgumentError(StrCat(spec_path_, ".", field, ": ", message...));
  }

  // Chooses the part that describes one model: the one that sub_config names (names separated by
  // dots); without sub_config text_config, if there is one, as transformers does.
  absl::StatusOr<JsonObject> ChooseSection(const Json& root) {
    JsonObject section(root, root_path_);
    default_type_ = whole_type_;
    if (sub_config_.empty()) {
      const Json* const text = section.Find("text_config");
      if (text == nullptr || !text->is_object()) return section;
      EnterPart("text_config");
      JsonObject inner(*text, section.PathOf("text_config"));
      PHASOR_RETURN_IF_ERROR(CheckOuter(section, inner));
      return inner;
    }
    for (size_t begin = 0; begin <= sub_config_.size();) {
      const size_t end = std::min(sub_config_.find('.', begin), sub_config_.size());
      const std::string name = sub_config_.substr(begin, end - begin);
      const Json* const inner = section.Find(name);
      if (inner == nullptr || !inner->is_object()) {
        return InvalidSpec("sub_config", "no object \"", Shown(name), "\" in ", section.path(),
                           "; must name a part of the configuration");
      }
      EnterPart(name);
      section = JsonObject(*inner, section.PathOf(name));
      std::optional<std::string> type;
      PHASOR_RETURN_IF_ERROR(section.Read("model_type", &type));
      if (type.has_value()) default_type_ = type;
      vision_ = name.find("vision") != std::string::npos;
      begin = end + 1;
    }
    return section;
  }

  // The model_type of a part that does not say its own.
  void EnterPart(std::string_view part) {
    const auto& parts = ConfigParts(default_type_.value_or(""));
    const auto found = parts.find(part);
    if (found != parts.end()) {
      default_type_ = found->second;
    } else if (part == "text_config") {
      default_type_.reset();
    }
  }

  // Values outside text_config must equal those inside.
  absl::Status CheckOuter(const JsonObject& outer, const JsonObject& inner) const {
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "head_dim"}) {
      const Json* const value = outer.Find(key);
      const Json* const own = inner.Find(key);
      if (value == nullptr || (own != nullptr && *own == *value)) continue;
      return absl::InvalidArgumentError(StrCat(outer.PathOf(key), ": text_config does not say the ",
                                               "same; must be equal or in one place"));
    }
    return absl::OkStatus();
  }

  absl::Status FindModel() {
    std::optional<std::string> type;
    PHASOR_RETURN_IF_ERROR(in_->Read("model_type", &type));
    const ConfigModel* found = FindRow(type.value_or(""));
    if (found == nullptr && (!type.has_value() || vision_))
      found = FindRow(default_type_.value_or(""));
    if (found == nullptr && sub_config_.empty()) {  // a composite model's file with flat text keys
      const auto& parts = ConfigParts(type.value_or(""));
      const auto text = parts.find("text_config");
      if (text != parts.end()) found = FindRow(text->second);
    }
    if (found != nullptr) {
      model_ = found;
      return absl::OkStatus();
    }
    if (!user_.pairing.has_value()) return UnknownModel(type);
    generic_ = true;
    generic_model_ = GenericConfigModel(in_->Find("qk_rope_head_dim") != nullptr);
    model_ = &generic_model_;
    return absl::OkStatus();
  }

  const ConfigModel* FindRow(const std::string& name) const {
    const ConfigModel* const found = FindConfigModel(name);
    if (!vision_ || (found != nullptr && found->vision())) return found;
    const ConfigModel* const tower = FindConfigModel(name + "_vision");
    const bool encoder =
        name.find("vision") != std::string::npos || name.find("encoder") != std::string::npos;
    return tower != nullptr || !encoder ? tower : found;
  }

  absl::Status UnknownModel(const std::optional<std::string>& type) const {
    if (sub_config_.empty() && !ConfigParts(type.value_or("")).empty()) {
      std::vector<std::string> parts;
      for (const auto& [part, name] : ConfigParts(*type)) parts.push_back(part);
      return InvalidSpec("sub_config", "not set; must be one of ", absl::StrJoin(parts, ", "),
                         " for model_type ", Shown(*type));
    }
    std::vector<std::string> known;
    for (const ConfigModel& model : ConfigModels()) known.push_back(model.model_type);
    return Invalid("model_type", type.has_value() ? StrCat("\"", Shown(*type), "\"") : "not set",
                   type.has_value() ? " is not known" : "", DidYouMean(type.value_or(""), known),
                   " must be one of docs/models.md, or ", spec_path_,
                   ".pairing must say which lanes form a pair (",
                   LikelyPairing(type.value_or(""), in_->Find("qk_rope_head_dim") != nullptr), ")");
  }

  const ConfigKind& kind() const { return *layer_.kind; }

  // Reads the dictionary (rope_parameters or rope_scaling) that applies.
  absl::Status ReadRope() {
    PHASOR_RETURN_IF_ERROR(in_->Read("max_position_embeddings", &lengths_.max_position_embeddings));
    PHASOR_RETURN_IF_ERROR(
        in_->Read("original_max_position_embeddings", &lengths_.original_max_position_embeddings));
    const Json* const now = in_->Find("rope_parameters");
    const Json* const old = in_->Find("rope_scaling");
    if (now != nullptr && old != nullptr && *now != *old) {
      return Invalid("rope_scaling", "differs from rope_parameters; must be equal or absent");
    }
    const char* const key = now != nullptr ? "rope_parameters" : "rope_scaling";
    const Json* const value = now != nullptr ? now : old;
    if (value != nullptr && !value->is_object())
      return WrongJson(in_->PathOf(key), *value, "an object");
    own_dictionary_ = value != nullptr && std::any_of(value->begin(), value->end(),
                                                      [](const Json& v) { return v.is_object(); });
    dictionary_ = value != nullptr && !value->empty();
    if (own_dictionary_) return ReadNested(JsonObject(*value, in_->PathOf(key)));
    if (dictionary_) return ReadFlat(key, *value);
    PHASOR_RETURN_IF_ERROR(CheckLayerType(false));
    if (kind().rope.is_null()) return absl::OkStatus();
    PHASOR_ASSIGN_OR_RETURN(
        rope_, ReadConfigRope(JsonObject(kind().rope, in_->PathOf(key)), *model_, lengths_));
    rope_.rope_theta.reset();  // kind().theta, unless a key says another
    if (!kind().partial_keys.empty() && in_->Find(kind().partial_keys[0]) != nullptr) {
      rope_.partial_rotary_factor.reset();
    }
    return absl::OkStatus();
  }

  // Reads one dictionary for all layers. In models whose two kinds of layers have different rotary
  // embeddings, transformers reads it only under its older name, rope_scaling, and for most of
  // these models applies it to full_attention layers only.
  absl::Status ReadFlat(std::string_view key, const Json& value) {
    const bool any = std::any_of(model_->kinds.begin(), model_->kinds.end(),
                                 [](const ConfigKind& one) { return one.scales; });
    if (model_->nested() && (key == "rope_parameters" || !any)) {
      return Invalid(key, "one dictionary for all layers is nothing that model_type ",
                     model_->model_type, " reads; must hold one for ", KindNames(" and one for "));
    }
    PHASOR_ASSIGN_OR_RETURN(ConfigRope rope,
                            ReadConfigRope(JsonObject(value, in_->PathOf(key)), *model_, lengths_));
    const bool scales = rope.proportional || rope.scaling != RopeScaling();
    if (!any && (scales || rope.rope_theta.has_value())) {
      return Invalid(key, "is nothing that model_type ", model_->model_type,
                     " reads; must be absent");
    }
    PHASOR_RETURN_IF_ERROR(CheckLayerType(scales || rope.rope_theta.has_value()));
    if (generic_ && scales && user_.rope_scaling == RopeScaling() && !IsFull() && Lists(kFull) &&
        Lists(kSliding)) {
      return Invalid(key, "may be for ", kFull, " layers alone where the model_type is not known;",
                     " must be beside layer_type ", kFull, " or the spec's own rope_scaling");
    }
    if (kind().scales) rope_ = std::move(rope);
    return absl::OkStatus();
  }

  std::string KindNames(const char* between) const {
    std::vector<std::string> names;
    for (const ConfigKind& one : model_->kinds) names.push_back(one.name);
    return absl::StrJoin(names, between);
  }

  bool IsFull() const { return layer_.name == kFull; }

  // Whether layer_types lists a layer of this kind.
  bool Lists(std::string_view name) const {
    const Json* const listed = in_->Find("layer_types");
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
    const Json* const chosen = kinds.Find(layer_.name);
    if (chosen == nullptr) {
      return InvalidSpec("layer_type", layer_.name.empty() ? "not set" : Shown(layer_.name),
                         "; must be one of ", names, " (", kinds.path(), ")");
    }
    PHASOR_ASSIGN_OR_RETURN(
        rope_, ReadConfigRope(JsonObject(*chosen, kinds.PathOf(layer_.name)), *model_, lengths_));
    return absl::OkStatus();
  }

  // Checks layer_type when there is no dictionary per kind of layer. A model with two rotary
  // embeddings needs it; other models accept only kinds that their layer_types lists.
  // `differ`: some layers have a base or a scaling of their own.
  absl::Status CheckLayerType(bool differ) const {
    const std::string& name = layer_.name;
    if (model_->nested()) {
      const bool same =
          name.empty() && !differ &&
          std::all_of(model_->kinds.begin(), model_->kinds.end(), [&](const ConfigKind& one) {
            return one.theta == kind().theta && one.rope == kind().rope &&
                   (one.theta_keys.empty() || one.theta_keys == model_->kinds[0].theta_keys);
          });
      if (model_->Find(name) != nullptr || same) return absl::OkStatus();
      return InvalidSpec("layer_type", name.empty() ? "not set" : Shown(name), "; must be ",
                         KindNames(" or "), " for model_type ", model_->model_type);
    }
    if (name.empty() || layer_.index.has_value() || Lists(name)) return absl::OkStatus();
    return InvalidSpec("layer_type", Shown(name), " is not in ", in_->PathOf("layer_types"),
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
        PHASOR_RETURN_IF_ERROR(in_->Read(key, &value));
        if (kind().only_beside_scaling) PHASOR_RETURN_IF_ERROR(CheckBeside(key, value));
        PHASOR_RETURN_IF_ERROR(Agree(key, value, &theta));
      }
      const bool beside = dictionary_ && kind().theta_beside_scaling > 0;
      const double fallback = beside ? kind().theta_beside_scaling : kind().theta;
      if (!theta.has_value() && fallback > 0) theta = fallback;
      if (kind().theta_keys.empty() && !own_dictionary_) PHASOR_RETURN_IF_ERROR(CheckOneBase());
    }
    if (layer_.theta.has_value()) theta = layer_.theta;
    if (!theta.has_value() && !user_.rope_theta.has_value()) {
      return Invalid("rope_theta", "not set; must be given where the model_type is not known");
    }
    out_.rope_theta = theta;
    return absl::OkStatus();
  }

  // The class of some models has a dictionary, base included, which the key alone does not change.
  absl::Status CheckBeside(std::string_view key, const std::optional<double>& value) const {
    const bool beside =
        in_->Find("rope_scaling") != nullptr || in_->Find("rope_parameters") != nullptr;
    if (beside || value.value_or(kind().theta) == kind().theta || user_.rope_theta.has_value()) {
      return absl::OkStatus();
    }
    return Invalid(key, *value, ", but model_type ", model_->model_type, " has ", kind().theta,
                   " where there is no rope_scaling; must be beside one, or in rope_parameters");
  }

  // For sliding_attention layers of Olmo 3, transformers uses the default base whatever the file
  // says; other releases use the file's base. So the two must agree.
  absl::Status CheckOneBase() const {
    std::optional<double> said;
    PHASOR_RETURN_IF_ERROR(in_->Read("rope_theta", &said));
    if (said.value_or(kind().theta) == kind().theta || user_.rope_theta.has_value()) {
      return absl::OkStatus();
    }
    return Invalid("rope_theta", *said, ", but ", kind().name, " layers have ", kind().theta,
                   " in transformers ", ConfigModelsVersion(),
                   "; must be beside the spec's own rope_theta for them");
  }

  absl::Status ReadHeads() {
    PHASOR_ASSIGN_OR_RETURN(const std::optional<int64_t> width, WidthOfLayers());
    return ReadConfigHeads(
        {*in_, *model_, kind(), rope_, user_, width, dictionary_, own_dictionary_}, &out_);
  }

  absl::StatusOr<std::optional<int64_t>> WidthOfLayers() const {
    if (user_.head_dim.has_value()) return std::nullopt;
    return PerLayerHeadDim(*in_, layer_, spec_path_);
  }

  absl::Status ReadPairing() {
    std::optional<bool> interleave;
    PHASOR_RETURN_IF_ERROR(in_->Read("rope_interleave", &interleave));
    if (user_.pairing.has_value()) return absl::OkStatus();
    const bool split = !interleave.value_or(true);
    out_.pairing = split ? Pairing::kHalfSplit : model_->pairing;
    out_.pairing_out = split ? Pairing::kHalfSplit : model_->pairing_out;
    return absl::OkStatus();
  }

  absl::Status ReadAxes() {
    if (model_->vision()) return ReadImageAxes();
    const std::optional<AxisRule> rule = generic_ ? user_.axis_rule : model_->axis_rule;
    if (rope_.mrope_section.empty()) rope_.mrope_section = model_->mrope_section;
    if (rope_.mrope_section.empty()) return absl::OkStatus();
    if (!rule.has_value() && !generic_) {
      return Invalid("rope_parameters.mrope_section", "model_type ", model_->model_type,
                     " has one axis; must not be set");
    }
    if (!rule.has_value()) {
      return InvalidSpec("axis_rule",
                         "not set; must be given beside mrope_section where the model_type "
                         "is not known");
    }
    const bool interleaved = *rule == AxisRule::kMropeInterleaved;
    if (rope_.mrope_interleaved.value_or(interleaved) != interleaved) {
      return Invalid("rope_parameters.mrope_interleaved",
                     *rope_.mrope_interleaved ? "true" : "false", "; must be ",
                     interleaved ? "true" : "false", " for this model");
    }
    out_.axes = static_cast<int>(std::min<size_t>(rope_.mrope_section.size(), kMaxAxes + 1));
    out_.axis_rule = *rule;
    out_.mrope_section = rope_.mrope_section;
    return absl::OkStatus();
  }

  // Axes of image and video models have equal shares of the head, or take its pairs in turn.
  absl::Status ReadImageAxes() {
    const int axes = static_cast<int>(model_->axes.size());
    out_.axes = axes;
    out_.axis_rule = *model_->axis_rule;
    const int64_t head_dim = *out_.head_dim;
    int64_t lanes = head_dim;
    if (out_.partial_rotary_factor.has_value()) {
      lanes = static_cast<int64_t>(static_cast<double>(head_dim) * *out_.partial_rotary_factor);
    }
    if (*model_->axis_rule == AxisRule::kList) {
      for (int64_t j = 0; j < lanes / 2; ++j) {
        out_.axis_of_pair.push_back(static_cast<int>(j % axes));
      }
    }
    if (*model_->axis_rule != AxisRule::kAxial) return absl::OkStatus();
    const int64_t share = lanes / axes / 2 * 2;
    if (share < 2) return Invalid("head_dim", head_dim, " is too narrow for ", axes, " axes");
    if (share * axes != head_dim) {
      out_.partial_rotary_factor.reset();
      out_.rotary_dim = share * axes;
    }
    if (!model_->dealt) return absl::OkStatus();
    for (int axis = 0; axis < axes; ++axis) {
      out_.axes_position_scale.push_back(std::pow(
          *out_.rope_theta, -2.0 * static_cast<double>(axis) / static_cast<double>(head_dim)));
    }
    return absl::OkStatus();
  }

  const Spec& user_;
  const std::string sub_config_;  // empty: not set
  const std::string_view spec_path_;
  const std::string root_path_;
  const JsonObject* in_ = nullptr;  // the part of the configuration that is read
  const ConfigModel* model_ = nullptr;
  ConfigModel generic_model_;
  ConfigLayer layer_;
  bool generic_ = false;                     // the model_type is not known
  bool vision_ = false;                      // sub_config names a vision tower
  std::optional<std::string> whole_type_;    // model_type of the whole configuration
  std::optional<std::string> default_type_;  // of a part that does not say it
  bool dictionary_ = false;                  // the file has a dictionary
  bool own_dictionary_ = false;              // the file has a dictionary per kind of layer
  ConfigLengths lengths_;
  ConfigRope rope_;
  Spec out_;
};

}  // namespace

absl::StatusOr<Spec> SpecFromConfigJson(const Spec& user, std::string_view path) {
  ConfigReader reader(user, path);
  return reader.With([&] { return reader.Run(); });
}

absl::StatusOr<std::optional<Spec>> LayerFromConfigJson(const Spec& user, std::string_view path) {
  ConfigReader reader(user, path);
  return reader.With([&] { return reader.ReadLayers(); });
}

absl::StatusOr<int64_t> LayersOfConfigJson(const Spec& user, std::string_view path) {
  ConfigReader reader(user, path);
  return reader.With([&] { return reader.CountLayers(); });
}

}  // namespace phasor
