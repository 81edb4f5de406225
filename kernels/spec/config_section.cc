// SPDX-License-Identifier: Apache-2.0
// Follows the names of sub_config through a file, and guesses what a part without a model_type is.
#include "kernels/spec/config_section.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

constexpr char kText[] = "text_config";

// Walks from the whole to one part. Borrows the user's spec. Threads: one thread at a time.
class SectionFinder {
 public:
  SectionFinder(const Spec& user, std::string_view path)
      : user_(user), sub_config_(user.sub_config.value_or("")), spec_path_(path) {}

  absl::StatusOr<ConfigSection> Run(const Json& root) {
    const std::string root_path = StrCat(spec_path_, ".config_json");
    if (!root.is_object()) return WrongJson(root_path, root, "an object");
    PHASOR_RETURN_IF_ERROR(JsonObject(root, root_path).Read("model_type", &default_type_));
    PHASOR_ASSIGN_OR_RETURN(const JsonObject in, Choose(root, root_path));
    return FindModel(in);
  }

 private:
  template <typename... T>
  absl::Status InvalidSpec(std::string_view field, const T&... message) const {
    return Invalid(spec_path_, ".", field, ": ", message...);
  }

  absl::StatusOr<JsonObject> Choose(const Json& root, const std::string& root_path) {
    JsonObject section(root, root_path);
    if (sub_config_.empty()) return EnterText(section);
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
    return EnterText(section);
  }

  // The language model of a composite model, which its file means when no part is named.
  absl::StatusOr<JsonObject> EnterText(const JsonObject& outer) {
    const Json* const text = outer.Find(kText);
    if (text == nullptr || !text->is_object()) return outer;
    EnterPart(kText);
    JsonObject inner(*text, outer.PathOf(kText));
    PHASOR_RETURN_IF_ERROR(CheckOuter(outer, inner));
    return inner;
  }

  // The model_type of a part that does not say its own.
  void EnterPart(std::string_view part) {
    const auto& parts = ConfigParts(default_type_.value_or(""));
    const auto found = parts.find(part);
    if (found != parts.end()) {
      default_type_ = found->second;
    } else if (part == kText) {
      default_type_.reset();
    }
  }

  // Values outside text_config must equal those inside.
  absl::Status CheckOuter(const JsonObject& outer, const JsonObject& inner) const {
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "head_dim"}) {
      const Json* const value = outer.Find(key);
      const Json* const own = inner.Find(key);
      if (value == nullptr || (own != nullptr && *own == *value)) continue;
      return InvalidAt(outer.PathOf(key),
                       "text_config does not say the same; must be equal or in one place");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ConfigSection> FindModel(const JsonObject& in) const {
    ConfigSection section{.in = in};
    std::optional<std::string> type;
    PHASOR_RETURN_IF_ERROR(in.Read("model_type", &type));
    section.known = FindRow(type.value_or(""));
    if (section.known == nullptr && (!type.has_value() || vision_)) {
      section.known = FindRow(default_type_.value_or(""));
    }
    if (section.known == nullptr && sub_config_.empty()) {
      // A composite model's file with flat text keys.
      const auto& parts = ConfigParts(type.value_or(""));
      const auto text = parts.find(kText);
      if (text != parts.end()) section.known = FindRow(text->second);
    }
    if (section.known != nullptr) return section;
    if (type.has_value() && NeedsOwnFields(*type)) {
      return InvalidAt(in.PathOf("model_type"), "\"", *type, "\" is not read from its file; ",
                       "leave config_json out and give the fields that docs/models.md names");
    }
    if (!user_.pairing.has_value()) return UnknownModel(in, type);
    section.generic = GenericConfigModel(in.Find("qk_rope_head_dim") != nullptr);
    return section;
  }

  const ConfigModel* FindRow(const std::string& name) const {
    const ConfigModel* const found = FindConfigModel(name);
    if (!vision_ || (found != nullptr && found->vision())) return found;
    const ConfigModel* const tower = FindConfigModel(name + "_vision");
    const bool encoder =
        name.find("vision") != std::string::npos || name.find("encoder") != std::string::npos;
    return tower != nullptr || !encoder ? tower : found;
  }

  absl::Status UnknownModel(const JsonObject& in, const std::optional<std::string>& type) const {
    if (!ConfigParts(type.value_or("")).empty()) {
      const std::string prefix = sub_config_.empty() ? "" : sub_config_ + ".";
      std::vector<std::string> parts;
      for (const auto& [part, name] : ConfigParts(*type)) parts.push_back(prefix + part);
      return InvalidSpec("sub_config", sub_config_.empty() ? "not set" : Shown(sub_config_),
                         "; must be one of ", absl::StrJoin(parts, ", "), " for model_type ",
                         Shown(*type));
    }
    std::vector<std::string> known;
    for (const ConfigModel& model : ConfigModels()) known.push_back(model.model_type);
    return InvalidAt(in.PathOf("model_type"),
                     type.has_value() ? StrCat("\"", Shown(*type), "\"") : "not set",
                     type.has_value() ? " is not known" : "", DidYouMean(type.value_or(""), known),
                     " must be one of docs/models.md, or ", spec_path_,
                     ".pairing must say which lanes form a pair (",
                     LikelyPairing(type.value_or(""), in.Find("qk_rope_head_dim") != nullptr), ")");
  }

  const Spec& user_;
  const std::string sub_config_;  // empty: not set
  const std::string_view spec_path_;
  bool vision_ = false;                      // sub_config names a vision tower
  std::optional<std::string> default_type_;  // of a part that does not say it
};

// The model_type that an object says; empty: none, or it is no text.
std::string TypeOf(const Json& object) {
  const auto type = object.find("model_type");
  return type != object.end() && type->is_string() ? type->get<std::string>() : "";
}

// Adds the parts inside `outer`, whose name is `prefix`; `type`: its model_type.
void AddParts(const Json& outer, const std::string& prefix, const std::string& type,
              std::vector<std::string>* parts) {
  const auto& defaults = ConfigParts(type);
  for (const auto& [key, value] : outer.items()) {
    if (parts->size() == kMaxConfigParts) return;
    const bool main = prefix.empty() && key == kText;
    // A name with a dot cannot be asked for.
    if (!value.is_object() || main || !key.ends_with("_config") || key.find('.') != key.npos) {
      continue;
    }
    const auto by_default = defaults.find(key);
    std::string own = TypeOf(value);
    if (own.empty() && by_default != defaults.end()) own = by_default->second;
    const size_t before = parts->size();
    const std::string name = StrCat(prefix, key);
    AddParts(value, name + ".", own, parts);
    if (parts->size() == before && !own.empty()) parts->push_back(name);
  }
}

}  // namespace

absl::StatusOr<ConfigSection> ChooseSection(const Json& root, const Spec& user,
                                            std::string_view path) {
  return SectionFinder(user, path).Run(root);
}

std::vector<std::string> PartsOfConfig(const Json& root) {
  std::vector<std::string> parts;
  if (root.is_object()) AddParts(root, "", TypeOf(root), &parts);
  return parts;
}

bool IsOnlyFrame(const Json& root) {
  if (!root.is_object()) return false;
  const std::string type = TypeOf(root);
  const auto text = root.find(kText);
  const bool has_text = text != root.end() && text->is_object();
  const auto& parts = ConfigParts(type);
  return !has_text && FindConfigModel(type) == nullptr && !parts.empty() && !parts.contains(kText);
}

}  // namespace phasor
