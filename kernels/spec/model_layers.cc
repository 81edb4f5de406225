// SPDX-License-Identifier: Apache-2.0
// Reads the layers of each part of a file, and gives equal specs one entry.
#include "kernels/spec/model_layers.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/spec/config_json.h"
#include "kernels/spec/config_section.h"
#include "kernels/spec/spec_base.h"

namespace phasor {
namespace {

// Collects the parts of one file. Threads: one thread at a time.
class ModelReader {
 public:
  explicit ModelReader(std::string_view path) : path_(path) {}

  // Adds the part that `user` means.
  absl::Status Add(const Json& root, const Spec& user) {
    PHASOR_ASSIGN_OR_RETURN(const ConfigLayerSpecs read,
                            LayersFromConfigJson(root, user, path_, &kinds_));
    std::vector<size_t> specs;
    for (const Spec& base : read.specs) {
      PHASOR_ASSIGN_OR_RETURN(specs.emplace_back(), IndexOf(base, user));
    }
    ModelPart part{.sub_config = user.sub_config.value_or(""), .model_type = read.model_type};
    std::vector<std::string> fingerprints;
    for (const ConfigLayerSpecs::Layer& layer : read.layers) {
      ModelLayer& out = part.layers.emplace_back(ModelLayer{layer.layer_type});
      if (layer.spec.has_value()) out.spec = specs[*layer.spec];
      fingerprints.push_back(out.spec.has_value() ? fingerprints_[*out.spec] : "");
    }
    part.fingerprint = FingerprintOfLayers(fingerprints);
    out_.parts.push_back(std::move(part));
    return absl::OkStatus();
  }

  // Adds a part of which the caller said nothing.
  void AddOther(const Json& root, const std::string& sub_config) {
    Spec user;
    user.sub_config = sub_config;
    const absl::Status status = Add(root, user);
    if (status.ok()) return;
    out_.parts.push_back({.sub_config = sub_config, .error = std::string(status.message())});
  }

  ResolvedModel Take() { return std::move(out_); }

 private:
  // Resolves `base` with the fields of `user` over it.
  absl::StatusOr<size_t> IndexOf(const Spec& base, Spec user) {
    user.config_json.clear();
    user.sub_config.reset();
    PHASOR_ASSIGN_OR_RETURN(ResolvedSpec resolved, ResolveSpec(MergeOverBase(base, user), path_));
    const auto found = std::find(out_.specs.begin(), out_.specs.end(), resolved);
    const size_t index = found - out_.specs.begin();
    if (found != out_.specs.end()) return index;
    fingerprints_.push_back(Fingerprint(resolved));
    out_.specs.push_back(std::move(resolved));
    return index;
  }

  const std::string_view path_;
  size_t kinds_ = kMaxModelSpecs;
  std::vector<std::string> fingerprints_;  // of out_.specs
  ResolvedModel out_;
};

absl::StatusOr<ResolvedModel> Resolve(const Spec& spec, std::string_view path, bool others) {
  PHASOR_RETURN_IF_ERROR(CheckBase(spec, path));
  if (spec.config_json.empty()) {
    return Invalid(path, ".config_json: not set; must be the model's config.json");
  }
  if (spec.layer_type.has_value()) {
    return Invalid(path, ".layer_type: set; must not be where all layers are asked for");
  }
  PHASOR_ASSIGN_OR_RETURN(const Json root, ParseConfigJson(spec, path));
  ModelReader reader(path);
  others = others && !spec.sub_config.has_value();
  const std::vector<std::string> parts = others ? PartsOfConfig(root) : std::vector<std::string>();
  if (parts.empty() || !IsOnlyFrame(root)) PHASOR_RETURN_IF_ERROR(reader.Add(root, spec));
  for (const std::string& part : parts) reader.AddOther(root, part);
  return reader.Take();
}

}  // namespace

absl::StatusOr<ResolvedModel> ResolveModel(const Spec& spec, std::string_view path) {
  return Resolve(spec, path, true);
}

absl::StatusOr<ResolvedModel> ResolveModelPart(const Spec& spec, std::string_view path) {
  return Resolve(spec, path, false);
}

}  // namespace phasor
