// SPDX-License-Identifier: Apache-2.0
// Works out the inputs and outputs of every preset and encoder, and finds models by name.
#include "server/oip/model_catalogue.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/base/text.h"

namespace phasor::oip {
namespace {

constexpr int64_t kAny = -1;

// The extents that a spec fixes without a request; -1 for the others.
struct Widths {
  int64_t dim = kAny;
  int64_t head_dim = kAny;
  int64_t axes = 1;
};

// `complete`: the spec resolves without fields from the caller.
Widths WidthsOf(const Spec& spec, bool complete) {
  if (complete) {
    if (const auto resolved = ResolveSpec(spec); resolved.ok()) {
      return {resolved->dim, resolved->head_dim, resolved->axes};
    }
  }
  const auto listed = static_cast<int>(spec.axes_dim.size());
  return {spec.dim.value_or(kAny), spec.head_dim.value_or(kAny),
          spec.axes.value_or(std::max(listed, 1))};
}

std::vector<int64_t> PositionShape(int64_t axes) {
  return axes == 1 ? std::vector<int64_t>{kAny} : std::vector<int64_t>{kAny, axes};
}

void AddEncoding(const Widths& widths, Model* model) {
  const std::vector<int64_t> rows = {kAny, widths.dim};
  model->inputs = {{"POSITIONS", Role::kPositions, Dtype::kInt64, PositionShape(widths.axes)},
                   {"EMBEDDINGS", Role::kAddTo, Dtype::kFloat32, rows, /*optional=*/true}};
  model->outputs = {{"ENCODING", Role::kOutput, Dtype::kFloat32, rows}};
}

void AddRotary(const Widths& widths, Model* model) {
  const std::vector<int64_t> positions = PositionShape(widths.axes);
  const std::vector<int64_t> heads = {kAny, kAny, widths.head_dim};
  model->inputs = {{"POSITIONS", Role::kPositions, Dtype::kInt64, positions},
                   {"Q", Role::kTensor, Dtype::kFloat32, heads},
                   {"K", Role::kTensor, Dtype::kFloat32, heads, /*optional=*/true, /*index=*/1},
                   {"FROM_POSITIONS", Role::kFromPositions, Dtype::kInt64, positions,
                    /*optional=*/true}};
  model->outputs = {{"Q_OUT", Role::kOutput, Dtype::kFloat32, heads},
                    {"K_OUT", Role::kOutput, Dtype::kFloat32, heads}};
}

void AddBias(BiasFamily family, Model* model) {
  const bool window = family == BiasFamily::kSwin;
  const bool buckets = family == BiasFamily::kDeberta;
  const bool table =
      family == BiasFamily::kT5 || family == BiasFamily::kClipped || family == BiasFamily::kSwin;
  const std::vector<int64_t> positions = PositionShape(window ? 2 : 1);
  const std::vector<int64_t> scores = {buckets ? 1 : kAny, kAny, kAny};
  model->inputs = {{"QUERY_POSITIONS", Role::kQueryPositions, Dtype::kInt64, positions, window},
                   {"KEY_POSITIONS", Role::kKeyPositions, Dtype::kInt64, positions, window}};
  if (table) {
    model->inputs.push_back(
        {"TABLE", Role::kTableValues, Dtype::kFloat32, {kAny, kAny}, /*optional=*/true});
  }
  if (!buckets) {
    model->inputs.push_back({"SCORES", Role::kAddTo, Dtype::kFloat32, scores, /*optional=*/true});
  }
  model->outputs = {{"BIAS", Role::kOutput, buckets ? Dtype::kInt64 : Dtype::kFloat32, scores}};
}

void AddTensors(SpecKind kind, const Widths& widths, Model* model) {
  if (kind == SpecKind::kRotary) {
    model->kind = ModelKind::kRotary;
    AddRotary(widths, model);
  } else {
    model->kind = ModelKind::kEncoding;
    AddEncoding(widths, model);
  }
}

Model ModelOf(const Preset& preset) {
  Model model;
  model.name = preset.name;
  model.summary = preset.summary;
  model.source = preset.source;
  model.required_parameters = preset.required_fields;
  model.spec.preset = preset.name;
  AddTensors(preset.spec.kind.value_or(SpecKind::kEncoding),
             WidthsOf(preset.spec, preset.required_fields.empty()), &model);
  return model;
}

Model ModelOf(const BiasPreset& preset) {
  Model model;
  model.name = preset.name;
  model.summary = preset.summary;
  model.source = preset.source;
  model.kind = ModelKind::kBias;
  model.bias = &preset;
  AddBias(*preset.spec.family, &model);
  return model;
}

Model ModelOf(const std::string& name, const EncoderSet::Encoder& encoder) {
  Model model;
  model.name = name;
  model.summary = "encoder of the configuration";
  model.source = encoder.spec.preset.empty() ? "" : StrCat("preset ", encoder.spec.preset);
  model.spec = encoder.spec;
  model.fingerprint = encoder.fingerprint;
  AddTensors(encoder.kind, WidthsOf(encoder.spec, /*complete=*/true), &model);
  return model;
}

using ModelMap = std::map<std::string, ModelRef, std::less<>>;

ModelMap MakePresetModels() {
  ModelMap models;
  const auto add = [&](const auto& preset) {
    models[preset.name] = std::make_shared<const Model>(ModelOf(preset));
  };
  for (const Preset& preset : Presets()) add(preset);
  for (const BiasPreset& preset : BiasPresets()) add(preset);
  return models;
}

const ModelMap& PresetModels() {
  static const auto* const models = new ModelMap(MakePresetModels());
  return *models;
}

}  // namespace

ModelSet::ModelSet(const EncoderSet& encoders) {
  ModelMap models = PresetModels();
  for (const auto& [name, encoder] : encoders.encoders()) {
    models[name] = std::make_shared<const Model>(ModelOf(name, encoder));
  }
  for (auto& [name, model] : models) models_.push_back(std::move(model));
}

size_t ModelSet::FirstFrom(std::string_view name) const {
  const auto found = std::lower_bound(
      models_.begin(), models_.end(), name,
      [](const ModelRef& model, std::string_view wanted) { return model->name < wanted; });
  return static_cast<size_t>(found - models_.begin());
}

ModelRef ModelSet::Find(std::string_view name) const {
  const size_t at = FirstFrom(name);
  return at < models_.size() && models_[at]->name == name ? models_[at] : nullptr;
}

std::vector<std::string> ModelSet::NamesNear(std::string_view name) const {
  constexpr size_t kMost = 128;
  const size_t at = FirstFrom(name);
  const size_t last = models_.size() - std::min(models_.size(), kMost);
  const size_t first = std::min(at - std::min(at, kMost / 2), last);
  std::vector<std::string> names;
  for (size_t i = first; i < models_.size() && names.size() < kMost; ++i) {
    names.push_back(models_[i]->name);
  }
  return names;
}

void ModelCatalogue::Replace(const EncoderSet& encoders) {
  auto next = std::make_shared<const ModelSet>(encoders);
  MutexLock lock(&mu_);
  set_ = std::move(next);
}

std::shared_ptr<const ModelSet> ModelCatalogue::Get() const {
  MutexLock lock(&mu_);
  return set_;
}

std::string NamesOf(absl::Span<const TensorSlot> slots) {
  return absl::StrJoin(slots, ", ",
                       [](std::string* out, const TensorSlot& slot) { out->append(slot.name); });
}

}  // namespace phasor::oip
