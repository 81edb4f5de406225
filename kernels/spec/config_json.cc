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
#include "kernels/base/json.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
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
        layer_type_(user.layer_type.value_or("")),
        sub_config_(user.sub_config.value_or("")),
        spec_path_(path),
        root_path_(StrCat(path, ".config_json")) {}

  absl::StatusOr<Spec> Run() {
    PHASOR_ASSIGN_OR_RETURN(const Json root, ParseJson(user_.config_json, root_path_));
    if (!root.is_object()) return WrongJson(root_path_, root, "an object");
    PHASOR_RETURN_IF_ERROR(JsonObject(root, root_path_).Read("model_type", &whole_type_));
    PHASOR_ASSIGN_OR_RETURN(const JsonObject section, ChooseSection(root));
    in_ = &section;
    PHASOR_RETURN_IF_ERROR(FindModel());
    PHASOR_RETURN_IF_ERROR(CheckConfigKeys(*in_, model_, generic_));
    PHASOR_RETURN_IF_ERROR(CheckPerLayerConfig(*in_, model_, user_.head_dim.has_value()));
    PHASOR_RETURN_IF_ERROR(ReadRope());
    PHASOR_RETURN_IF_ERROR(ReadTheta());
    PHASOR_RETURN_IF_ERROR(ReadHeads());
    PHASOR_RETURN_IF_ERROR(ReadPairing());
    PHASOR_RETURN_IF_ERROR(ReadAxes());
    out_.kind = SpecKind::kRotary;
    out_.family = FrequencyFamily::kGeometric;
    out_.rope_scaling = rope_.scaling;
    return std::move(out_);
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
    if (sub_config_.empty()) {
      const Json* const text = section.Find("text_config");
      if (text == nullptr || !text->is_object()) return section;
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
      section = JsonObject(*inner, section.PathOf(name));
      vision_ = name.find("vision") != std::string::npos;
      begin = end + 1;
    }
    return section;
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
    if (vision_ && !type.has_value()) type = whole_type_;
    const std::string name = type.value_or("");
    const ConfigModel* found = FindConfigModel(name);
    if (vision_ && (found == nullptr || !found->vision)) found = FindConfigModel(name + "_vision");
    if (found != nullptr) {
      model_ = *found;
      return absl::OkStatus();
    }
    if (!user_.pairing.has_value()) {
      std::vector<std::string> known;
      for (const ConfigModel& model : ConfigModels()) known.emplace_back(model.model_type);
      return Invalid("model_type", type.has_value() ? StrCat("\"", Shown(name), "\"") : "not set",
                     type.has_value() ? " is not known" : "", DidYouMean(name, known),
                     " must be one of docs/presets.md, or ", spec_path_,
                     ".pairing must say which lanes form a pair");
    }
    generic_ = true;
    model_.rope_theta = 0;
    model_.partial_rotary_factor = 1;
    model_.latent = in_->Find("qk_rope_head_dim") != nullptr;
    return absl::OkStatus();
  }

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
    if (value == nullptr && model_.needs_rope_parameters) {
      return Invalid("rope_parameters", "not set; must be given for model_type ",
                     model_.model_type);
    }
    if (value != nullptr && !value->is_object())
      return WrongJson(in_->PathOf(key), *value, "an object");
    nested_ = value != nullptr && std::any_of(value->begin(), value->end(),
                                              [](const Json& v) { return v.is_object(); });
    if (nested_) return ReadNested(JsonObject(*value, in_->PathOf(key)));
    if (value == nullptr) return CheckLayerType(false);
    return ReadFlat(key, *value);
  }

  // Reads one dictionary for all layers. In models whose two kinds of layers have different rotary
  // embeddings, transformers reads it only under its older name, rope_scaling, and for most of
  // these models applies it to full_attention layers only.
  absl::Status ReadFlat(std::string_view key, const Json& value) {
    const bool newer = key == "rope_parameters" && !value.empty();
    if (model_.local_theta > 0 && (newer || model_.needs_rope_parameters)) {
      return Invalid(key, "one dictionary for all layers is nothing that model_type ",
                     model_.model_type, " reads; must hold one for ", kFull, " and one for ",
                     kSliding);
    }
    PHASOR_ASSIGN_OR_RETURN(ConfigRope rope,
                            ReadConfigRope(JsonObject(value, in_->PathOf(key)), model_, lengths_));
    const bool scales = rope.proportional || rope.scaling != RopeScaling();
    PHASOR_RETURN_IF_ERROR(CheckLayerType(scales || rope.rope_theta.has_value()));
    if (generic_ && scales && user_.rope_scaling == RopeScaling() && !IsFull() && Lists(kFull) &&
        Lists(kSliding)) {
      return Invalid(key, "may be for ", kFull, " layers alone where the model_type is not known;",
                     " must be beside layer_type ", kFull, " or the spec's own rope_scaling");
    }
    if (model_.local_theta == 0 || model_.local_is_scaled || IsFull()) rope_ = std::move(rope);
    return absl::OkStatus();
  }

  bool IsFull() const { return layer_type_ == kFull; }

  // Whether layer_types lists a layer of this kind.
  bool Lists(std::string_view kind) const {
    const Json* const listed = in_->Find("layer_types");
    return listed != nullptr && listed->is_array() &&
           std::find(listed->begin(), listed->end(), Json(kind)) != listed->end();
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
    const Json* const chosen = kinds.Find(layer_type_);
    if (chosen == nullptr) {
      return InvalidSpec("layer_type", layer_type_.empty() ? "not set" : Shown(layer_type_),
                         "; must be one of ", names, " (", kinds.path(), ")");
    }
    PHASOR_ASSIGN_OR_RETURN(
        rope_, ReadConfigRope(JsonObject(*chosen, kinds.PathOf(layer_type_)), model_, lengths_));
    return absl::OkStatus();
  }

  // Checks layer_type when there is no dictionary per kind of layer. A model with two rotary
  // embeddings needs it; other models accept only kinds that their layer_types lists.
  // `differ`: full_attention layers have a base or a scaling of their own.
  absl::Status CheckLayerType(bool differ) const {
    const std::string& kind = layer_type_;
    if (model_.local_theta > 0) {
      const bool same = kind.empty() && model_.one_base && !differ;
      if (kind == kFull || kind == kSliding || same) return absl::OkStatus();
      return InvalidSpec("layer_type", kind.empty() ? "not set" : Shown(kind), "; must be ", kFull,
                         " or ", kSliding, " for model_type ", model_.model_type);
    }
    // If the sliding_window of an EXAONE 4 is null, all of its layers rotate.
    const bool windows =
        in_->Find("sliding_window") != nullptr || !in_->json().contains("sliding_window");
    if (model_.full_stands_still && windows && IsFull()) {
      return InvalidSpec("layer_type", kind, ", whose layers model_type ", model_.model_type,
                         " does not rotate; must be ", kSliding, " or not set");
    }
    if (kind.empty() || Lists(kind)) return absl::OkStatus();
    return InvalidSpec("layer_type", Shown(kind), " is not in ", in_->PathOf("layer_types"),
                       "; must not be set where all layers have one rotary embedding");
  }

  // Stores `value`, which `key` has, in `found`. Fails if another key has set a different value.
  template <typename T>
  absl::Status Agree(std::string_view key, const std::optional<T>& value,
                     std::optional<T>* found) const {
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
    if (!(nested_ && theta.has_value())) {
      const bool local = model_.local_theta > 0 && !IsFull();
      const auto keys =
          local ? std::vector<const char*>{"rope_local_base_freq", "local_rope_theta"}
                : std::vector<const char*>{"rope_theta", "rotary_emb_base", "global_rope_theta"};
      for (const char* key : keys) {
        std::optional<double> value;
        PHASOR_RETURN_IF_ERROR(in_->Read(key, &value));
        PHASOR_RETURN_IF_ERROR(Agree(key, value, &theta));
      }
      const double fallback = local ? model_.local_theta : model_.rope_theta;
      if (!theta.has_value() && fallback > 0) theta = fallback;
      if (local && model_.one_base) PHASOR_RETURN_IF_ERROR(CheckOneBase(fallback));
    }
    if (!theta.has_value() && !user_.rope_theta.has_value()) {
      return Invalid("rope_theta", "not set; must be given where the model_type is not known");
    }
    out_.rope_theta = theta;
    return absl::OkStatus();
  }

  // For sliding_attention layers of Olmo 3, transformers 5.23.0 uses the default base whatever the
  // file says; other releases use the file's base. So the two must agree.
  absl::Status CheckOneBase(double base) const {
    std::optional<double> said;
    PHASOR_RETURN_IF_ERROR(in_->Read("rope_theta", &said));
    if (said.value_or(base) == base || user_.rope_theta.has_value()) return absl::OkStatus();
    return Invalid("rope_theta", *said, ", but ", kSliding, " layers have ", base,
                   " in transformers 5.23.0; must be beside the spec's own rope_theta for them");
  }

  // The value of the first of `keys` that is set.
  absl::StatusOr<std::optional<int64_t>> FirstOf(std::initializer_list<const char*> keys) const {
    std::optional<int64_t> value;
    for (const char* key : keys) {
      PHASOR_RETURN_IF_ERROR(in_->Read(key, &value));
      if (!value.has_value()) continue;
      if (*value < 1) return Invalid(key, *value, "; must be > 0");
      break;
    }
    return value;
  }

  absl::Status ReadHeads() {
    if (model_.latent) return ReadLatentHeads();
    PHASOR_ASSIGN_OR_RETURN(out_.head_dim, HeadDim());
    PHASOR_RETURN_IF_ERROR(CheckAliases());
    std::optional<int64_t> rotary_dim;
    PHASOR_RETURN_IF_ERROR(in_->Read("rotary_dim", &rotary_dim));
    // If the key is absent, the model's default applies; null means the whole head.
    if (model_.rotary_dim > 0 && !in_->json().contains("rotary_dim")) {
      rotary_dim = model_.rotary_dim;
    }
    PHASOR_ASSIGN_OR_RETURN(const std::optional<double> factor, PartialFactor());
    const int64_t head_dim = *out_.head_dim;
    if (head_dim > kMaxWidth) {
      return Invalid("head_dim", head_dim, " is out of range; must be at most ", kMaxWidth);
    }
    if (rope_.proportional) {
      out_.rotary_dim = head_dim;
      out_.live_pairs =
          static_cast<int64_t>(std::floor(factor.value_or(1) * static_cast<double>(head_dim) / 2));
      return absl::OkStatus();
    }
    const double turned = factor.value_or(model_.partial_rotary_factor);
    if (model_.partial_rotary_factor == 0 && turned != 0 && turned != 1) {
      return Invalid("partial_rotary_factor", turned, ", model_type ", model_.model_type,
                     " rotates whole heads; must be 1 or absent");
    }
    // For Bamba, some loaders read this number of lanes and others the fraction of its class. They
    // must agree.
    PHASOR_ASSIGN_OR_RETURN(const auto lanes, FirstOf({"attn_rotary_emb"}));
    if (lanes.has_value() && 2 * *lanes != head_dim) {
      return Invalid("attn_rotary_emb", *lanes, "; must be half of head_dim ", head_dim);
    }
    if (rotary_dim.has_value()) {
      const bool whole = model_.partial_rotary_factor == 0 && *rotary_dim != head_dim;
      const bool contradicts =
          factor.has_value() &&
          static_cast<int64_t>(static_cast<double>(head_dim) * *factor) != *rotary_dim;
      if (whole || contradicts) {
        return Invalid("rotary_dim", *rotary_dim, " contradicts ",
                       whole ? StrCat("head_dim ", head_dim) : "partial_rotary_factor",
                       "; must be the same");
      }
      out_.rotary_dim = rotary_dim;
    } else if (turned != 0 && turned != 1) {
      out_.partial_rotary_factor = turned;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> HeadDim() const {
    if (user_.head_dim.has_value()) return *user_.head_dim;
    PHASOR_ASSIGN_OR_RETURN(std::optional<int64_t> head_dim,
                            PerLayerHeadDim(*in_, layer_type_, spec_path_));
    if (model_.full_head_dim > 0 && IsFull()) {
      PHASOR_ASSIGN_OR_RETURN(const auto full, FirstOf({"global_head_dim"}));
      // The class uses separate widths only if the key is absent; a key that is null is present.
      if (!in_->json().contains("per_layer_config")) return full.value_or(model_.full_head_dim);
      if (full.has_value() && full != head_dim) {
        return Invalid("global_head_dim", *full, " contradicts per_layer_config; must be absent");
      }
    }
    if (head_dim.has_value()) return *head_dim;
    const bool jetmoe = model_.model_type == "jetmoe";
    PHASOR_ASSIGN_OR_RETURN(head_dim, FirstOf({"head_dim", jetmoe ? "kv_channels" : "head_dim"}));
    if (head_dim.has_value()) return *head_dim;
    if (model_.head_dim > 0) return model_.head_dim;
    PHASOR_ASSIGN_OR_RETURN(const auto hidden, FirstOf({"embed_dim", "hidden_size", "n_embd"}));
    PHASOR_ASSIGN_OR_RETURN(const auto heads,
                            FirstOf({"num_attention_heads", "num_heads", "n_head"}));
    if (!hidden.has_value() || !heads.has_value()) {
      return Invalid("head_dim",
                     "not set; must be given without hidden_size and num_attention_heads");
    }
    if (*hidden % *heads != 0) {
      return Invalid("head_dim", "not set; must be given since hidden_size ", *hidden,
                     " does not split evenly over ", *heads, " heads");
    }
    return *hidden / *heads;
  }

  // Other names of the width are not read, but their values must agree with it.
  absl::Status CheckAliases() const {
    for (const char* key : kHeadDimAliases) {
      PHASOR_ASSIGN_OR_RETURN(const auto width, FirstOf({key}));
      if (width.value_or(*out_.head_dim) == *out_.head_dim || user_.head_dim.has_value()) continue;
      return Invalid(key, *width, " contradicts head_dim ", *out_.head_dim,
                     "; must be the same or beside the spec's own head_dim");
    }
    return absl::OkStatus();
  }

  // The share of lanes that rotate, if the configuration gives it.
  absl::StatusOr<std::optional<double>> PartialFactor() const {
    std::optional<double> factor = rope_.partial_rotary_factor;
    const bool own = nested_ && factor.has_value();
    for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
      std::optional<double> value;
      if (own) break;
      PHASOR_RETURN_IF_ERROR(in_->Read(key, &value));
      PHASOR_RETURN_IF_ERROR(Agree(key, value, &factor));
    }
    if (factor.has_value() && !(*factor > 0 && *factor <= 1)) {
      return Invalid("partial_rotary_factor", *factor, "; must be in (0, 1]");
    }
    return factor;
  }

  // Heads of [content | rotary] lanes (DeepSeek). head_dim, if set, is the rotary width or the sum
  // of both.
  absl::Status ReadLatentHeads() {
    PHASOR_ASSIGN_OR_RETURN(const auto nope, FirstOf({"qk_nope_head_dim"}));
    PHASOR_ASSIGN_OR_RETURN(const auto rope, FirstOf({"qk_rope_head_dim"}));
    if (!nope.has_value())
      return Invalid("qk_nope_head_dim", "not set; must be given beside qk_rope_head_dim");
    if (!rope.has_value()) return Invalid("qk_rope_head_dim", "not set; must be given");
    if (*nope > kMaxWidth || *rope > kMaxWidth) {
      return Invalid("qk_rope_head_dim", *rope, " beside qk_nope_head_dim ", *nope,
                     "; must both be at most ", kMaxWidth);
    }
    PHASOR_ASSIGN_OR_RETURN(const auto head_dim, FirstOf({"head_dim"}));
    if (head_dim.has_value() && *head_dim != *rope && *head_dim != *nope + *rope) {
      return Invalid("head_dim", *head_dim, " contradicts qk_rope_head_dim ", *rope,
                     "; must be that or its sum with qk_nope_head_dim");
    }
    PHASOR_ASSIGN_OR_RETURN(const std::optional<double> factor, PartialFactor());
    const double whole = static_cast<double>(*nope + *rope);
    if (factor.value_or(1) != 1 && static_cast<int64_t>(whole * *factor) != *rope) {
      return Invalid("partial_rotary_factor", *factor, " contradicts qk_rope_head_dim ", *rope,
                     "; must agree with it");
    }
    out_.head_dim = *nope + *rope;
    out_.rotary_begin = *nope;
    out_.rotary_dim = *rope;
    return absl::OkStatus();
  }

  absl::Status ReadPairing() {
    std::optional<bool> interleave;
    PHASOR_RETURN_IF_ERROR(in_->Read("rope_interleave", &interleave));
    if (user_.pairing.has_value()) return absl::OkStatus();
    const bool split = !interleave.value_or(true);
    out_.pairing = split ? Pairing::kHalfSplit : model_.pairing;
    out_.pairing_out = split ? Pairing::kHalfSplit : model_.pairing_out;
    return absl::OkStatus();
  }

  absl::Status ReadAxes() {
    if (model_.vision) {
      out_.axes = 2;
      out_.axis_rule = AxisRule::kAxial;
      return absl::OkStatus();
    }
    const std::optional<AxisRule> rule = generic_ ? user_.axis_rule : model_.mrope;
    if (rope_.mrope_section.empty()) {
      if (!model_.mrope.has_value()) return absl::OkStatus();
      return Invalid("rope_parameters.mrope_section", "not set; must be given for model_type ",
                     model_.model_type);
    }
    if (!rule.has_value() && !generic_) {
      return Invalid("rope_parameters.mrope_section", "model_type ", model_.model_type,
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

  const Spec& user_;
  const std::string layer_type_;  // empty: not set
  const std::string sub_config_;  // empty: not set
  const std::string_view spec_path_;
  const std::string root_path_;
  const JsonObject* in_ = nullptr;  // the part of the configuration that is read
  ConfigModel model_;
  bool generic_ = false;                   // the model_type is not known
  bool vision_ = false;                    // sub_config names a vision tower
  std::optional<std::string> whole_type_;  // model_type of the whole configuration
  bool nested_ = false;                    // rope_parameters has a dictionary per kind of layer
  ConfigLengths lengths_;
  ConfigRope rope_;
  Spec out_;
};

}  // namespace

absl::StatusOr<Spec> SpecFromConfigJson(const Spec& user, std::string_view path) {
  return ConfigReader(user, path).Run();
}

}  // namespace phasor
