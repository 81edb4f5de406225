// SPDX-License-Identifier: Apache-2.0
// Parses the embedded presets.json once and finds presets by name.
#include "kernels/spec/presets.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "kernels/base/json.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec_json.h"

namespace phasor {

extern const std::string_view
    kPresetsJson;  // kernels/spec/presets.json, see cmake/PhasorEmbed.cmake

namespace {

constexpr std::string_view kKeys[] = {"name",           "summary", "spec",     "required",
                                      "context_length", "source",  "verified", "note"};

absl::StatusOr<Preset> ReadPreset(const JsonObject& json) {
  for (const auto& [key, value] : json.json().items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      return UnknownKey(json.path(), key, kKeys);
    }
  }
  Preset preset;
  const Json null;
  const auto member = [&](std::string_view key) -> const Json& {
    const Json* const found = json.Find(key);
    return found == nullptr ? null : *found;
  };
  const auto read = [&](std::string_view key, auto* out) {
    return ReadJson(member(key), json.PathOf(key), out);
  };
  PHASOR_RETURN_IF_ERROR(read("name", &preset.name));
  PHASOR_RETURN_IF_ERROR(read("summary", &preset.summary));
  PHASOR_RETURN_IF_ERROR(read("source", &preset.source));
  PHASOR_RETURN_IF_ERROR(read("required", &preset.required_fields));
  PHASOR_RETURN_IF_ERROR(json.Read("context_length", &preset.context_length));
  PHASOR_RETURN_IF_ERROR(read("verified", &preset.verified));
  PHASOR_RETURN_IF_ERROR(read("note", &preset.note));
  PHASOR_ASSIGN_OR_RETURN(preset.spec, SpecFromJson(member("spec"), json.PathOf("spec")));
  return preset;
}

std::vector<Preset> BuiltIn() {
  auto presets = PresetsFromJson(kPresetsJson);
  if (!presets.ok()) {  // cannot happen: the tests of this build read the data
    std::fprintf(stderr, "kernels/spec/presets.json: %s\n", presets.status().ToString().c_str());
    std::abort();
  }
  return *std::move(presets);
}

const std::vector<Preset>& AllPresets() {
  static const auto& presets = *new std::vector<Preset>(BuiltIn());
  return presets;
}

}  // namespace

absl::Span<const Preset> Presets() { return AllPresets(); }

const Preset* FindPreset(std::string_view name) {
  const auto& presets = AllPresets();
  const auto found = std::lower_bound(
      presets.begin(), presets.end(), name,
      [](const Preset& preset, std::string_view wanted) { return preset.name < wanted; });
  return found != presets.end() && found->name == name ? &*found : nullptr;
}

absl::StatusOr<std::vector<Preset>> PresetsFromJson(std::string_view text) {
  PHASOR_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "presets"));
  if (!json.is_array()) return WrongJson("presets", json, "a list");
  std::vector<Preset> presets;
  for (const Json& element : json) {
    const std::string path = StrCat("presets[", presets.size(), "]");
    if (!element.is_object()) return WrongJson(path, element, "an object");
    PHASOR_ASSIGN_OR_RETURN(Preset preset, ReadPreset(JsonObject(element, path)));
    presets.push_back(std::move(preset));
  }
  return presets;
}

}  // namespace phasor
