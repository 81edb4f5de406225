// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/move_specs.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/rotary_spec.h"
#include "kernels/spec/config_json.h"
#include "kernels/spec/config_section.h"
#include "kernels/spec/model_layers.h"

namespace phasor {
namespace {

absl::Status CheckKeySpec(const ResolvedSpec& spec, std::string_view path) {
  if (spec.kind != SpecKind::kRotary) {
    return Invalid(path, ".kind: ENCODING; must be ROTARY for this call");
  }
  if (spec.precision != Precision::kExact) {
    return Invalid(path,
                   ".precision: PARITY, no upstream turns keys by a difference; must be EXACT");
  }
  return absl::OkStatus();
}

// Models that norm keys after they turn, with a weight for every lane. The weights of the two lanes
// of a pair differ, so that no rotation leads from one cached key to another.
constexpr std::string_view kNormTurnedKeys[] = {"hunyuan_v1_dense", "hunyuan_v1_moe"};

absl::Status CheckModel(const Spec& spec, std::string_view path) {
  const auto named = [&](std::string_view type) {
    return spec.config_json.find(type) != std::string::npos;
  };
  // Most files are not parsed a second time.
  if (std::none_of(std::begin(kNormTurnedKeys), std::end(kNormTurnedKeys), named)) {
    return absl::OkStatus();
  }
  PHASOR_ASSIGN_OR_RETURN(const Json root, ParseConfigJson(spec, path));
  PHASOR_ASSIGN_OR_RETURN(const ConfigSection section, ChooseSection(root, spec, path));
  const std::string& type = section.model().model_type;
  if (std::find(std::begin(kNormTurnedKeys), std::end(kNormTurnedKeys), type) ==
      std::end(kNormTurnedKeys)) {
    return absl::OkStatus();
  }
  return Invalid(path, ".config_json.model_type: ", type,
                 ", which norms keys after they turn, with a weight for every lane; must be a "
                 "model whose cached keys are rotated last: compute these keys again");
}

absl::Status CheckPin(std::string_view pin, std::string_view fingerprint, std::string_view path) {
  if (pin.empty() || pin == fingerprint) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat(path, ": ", Shown(pin), " is pinned, the spec has ",
                                              fingerprint, "; pin that or nothing"));
}

// One spec, or the specs of a model's layers. Compiles those that are used.
class Rotations {
 public:
  // Of all layers alike, which have heads of that width.
  static absl::StatusOr<Rotations> OfSpec(const Spec& spec, int64_t head_dim,
                                          std::string_view path) {
    Rotations out;
    PHASOR_ASSIGN_OR_RETURN(out.specs_.emplace_back(), ResolveRotarySpec(spec, head_dim, path));
    PHASOR_RETURN_IF_ERROR(CheckKeySpec(out.specs_[0], path));
    out.fingerprint_ = Fingerprint(out.specs_[0]);
    out.plans_.resize(1);
    return out;
  }

  // Of the model whose config_json the spec holds.
  static absl::StatusOr<Rotations> OfModel(const Spec& spec, std::string_view path) {
    PHASOR_ASSIGN_OR_RETURN(ResolvedModel model, ResolveModelPart(spec, path));
    Rotations out;
    out.specs_ = std::move(model.specs);
    for (const ResolvedSpec& one : out.specs_) PHASOR_RETURN_IF_ERROR(CheckKeySpec(one, path));
    out.layers_ = std::move(model.parts[0].layers);
    out.fingerprint_ = model.parts[0].fingerprint;
    out.plans_.resize(out.specs_.size());
    return out;
  }

  const std::string& fingerprint() const { return fingerprint_; }
  bool of_model() const { return layers_.has_value(); }

  // The plan of a layer; nullptr: it does not rotate. `path`: of the layer.
  absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const KeyLayer& layer, PlanProvider plans,
                                                     const std::string& path) {
    size_t spec = 0;
    if (layers_.has_value()) {
      const int64_t number = layer.model_layer.value_or(-1);
      if (number < 0 || number >= static_cast<int64_t>(layers_->size())) {
        return Invalid(path, ".model_layer: ", number, "; must be in [0, ", layers_->size(),
                       "), the layers of its spec's model");
      }
      const std::optional<size_t>& index = (*layers_)[static_cast<size_t>(number)].spec;
      if (!index.has_value()) return nullptr;
      spec = *index;
    }
    if (plans_[spec] == nullptr) {
      PHASOR_ASSIGN_OR_RETURN(plans_[spec], plans(specs_[spec]));
    }
    return plans_[spec];
  }

 private:
  std::vector<ResolvedSpec> specs_;
  std::vector<std::shared_ptr<const Plan>> plans_;  // of specs_; nullptr: not used yet
  std::optional<std::vector<ModelLayer>> layers_;   // not set: all layers are alike
  std::string fingerprint_;
};

// Finds the rotations of the layers that have one spec. Borrows. Threads: one thread at a time.
class SpecUser {
 public:
  SpecUser(const MoveRequest& request, size_t spec, PlanProvider plans, std::string_view path)
      : request_(request),
        spec_(request.specs[spec]),
        plans_(plans),
        path_(path),
        spec_path_(StrCat(path, ".specs[", spec, "]")) {
    for (size_t i = 0; i < request.layers.size(); ++i) {
      if (request.layers[i].spec == static_cast<int64_t>(spec)) users_.push_back(i);
    }
  }

  absl::Status Run(MoveSpecs* out) {
    if (users_.empty()) return Invalid(spec_path_, ": no layer has it; remove it");
    PHASOR_RETURN_IF_ERROR(CheckNumbers());
    PHASOR_ASSIGN_OR_RETURN(Rotations to, RotationsOf(spec_.spec, spec_path_ + ".spec"));
    std::optional<Rotations> from;
    if (spec_.from_spec.has_value()) {
      PHASOR_ASSIGN_OR_RETURN(from, RotationsOf(*spec_.from_spec, spec_path_ + ".from_spec"));
    }
    for (const size_t i : users_) {
      PHASOR_RETURN_IF_ERROR(Turn(i, to, from.has_value() ? &*from : nullptr, out));
    }
    const std::string& from_fingerprint = (from.has_value() ? *from : to).fingerprint();
    PHASOR_RETURN_IF_ERROR(
        CheckPin(spec_.fingerprint, to.fingerprint(), spec_path_ + ".fingerprint"));
    PHASOR_RETURN_IF_ERROR(
        CheckPin(spec_.from_fingerprint, from_fingerprint, spec_path_ + ".from_fingerprint"));
    out->specs.push_back({to.fingerprint(), from_fingerprint});
    return absl::OkStatus();
  }

 private:
  std::string LayerPath(size_t i) const { return StrCat(path_, ".layers[", i, "]"); }
  bool Numbered(size_t i) const { return request_.layers[i].model_layer.has_value(); }

  absl::Status CheckNumbers() const {
    for (const size_t i : users_) {
      if (Numbered(i) == Numbered(users_[0])) continue;
      return Invalid(LayerPath(i), ".model_layer: ", Numbered(i) ? "set" : "not set", ", unlike ",
                     LayerPath(users_[0]), ", which has the same spec; must be set in all or none");
    }
    if (!Numbered(users_[0]) || !spec_.spec.config_json.empty()) return absl::OkStatus();
    return Invalid(spec_path_,
                   ".spec.config_json: not set; must be, where layers have model_layer");
  }

  absl::StatusOr<Rotations> RotationsOf(const Spec& spec, const std::string& path) const {
    const auto layout = static_cast<size_t>(request_.layers[users_[0]].layout);
    const bool of_model = Numbered(users_[0]) && !spec.config_json.empty();
    PHASOR_ASSIGN_OR_RETURN(
        Rotations out, of_model ? Rotations::OfModel(spec, path)
                                : Rotations::OfSpec(spec, request_.layouts[layout].head_dim, path));
    PHASOR_RETURN_IF_ERROR(CheckModel(spec, path));
    return out;
  }

  // Sets how layer `i` turns.
  absl::Status Turn(size_t i, Rotations& to, Rotations* from, MoveSpecs* out) const {
    const KeyLayer& layer = request_.layers[i];
    const std::string path = LayerPath(i);
    PHASOR_ASSIGN_OR_RETURN(const auto plan, to.PlanOf(layer, plans_, path));
    auto from_plan = plan;
    if (from != nullptr && (plan != nullptr || from->of_model())) {
      PHASOR_ASSIGN_OR_RETURN(from_plan, from->PlanOf(layer, plans_, path));
    }
    if ((plan == nullptr) != (from_plan == nullptr)) {
      return Invalid(path, ".model_layer: ", *layer.model_layer, " rotates in ",
                     plan == nullptr ? "from_spec" : "spec",
                     " only; must in both specs or in neither");
    }
    if (plan == nullptr) return absl::OkStatus();
    if (from != nullptr) {
      PHASOR_RETURN_IF_ERROR(CheckDelta(*from_plan, *plan, spec_path_ + ".from_spec"));
    }
    PHASOR_RETURN_IF_ERROR(CheckAmplitude(*plan, spec_path_ + ".spec"));
    out->layers[i] = {plan.get(), from_plan.get()};
    out->plans.push_back(plan);
    out->plans.push_back(from_plan);
    return absl::OkStatus();
  }

  const MoveRequest& request_;
  const KeySpec& spec_;
  const PlanProvider plans_;
  const std::string_view path_;
  const std::string spec_path_;
  std::vector<size_t> users_;  // layers
};

}  // namespace

absl::StatusOr<MoveSpecs> PrepareMoveSpecs(const MoveRequest& request, PlanProvider plans,
                                           std::string_view path) {
  MoveSpecs out;
  out.layers.resize(request.layers.size());
  for (size_t i = 0; i < request.layers.size(); ++i) {
    if (request.layers[i].spec.has_value() || !request.layers[i].model_layer.has_value()) continue;
    return Invalid(path, ".layers[", i, "].model_layer: set without spec; must be beside one");
  }
  for (size_t s = 0; s < request.specs.size(); ++s) {
    PHASOR_RETURN_IF_ERROR(SpecUser(request, s, plans, path).Run(&out));
  }
  return out;
}

}  // namespace phasor
