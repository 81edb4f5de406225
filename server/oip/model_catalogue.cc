// SPDX-License-Identifier: Apache-2.0
// See model_catalogue.h.
#include "server/oip/model_catalogue.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace phasor::oip {
namespace {

constexpr int64_t kAny = -1;

// What of a preset's shapes is known without a request.
struct Widths {
  int64_t dim = kAny;
  int64_t head_dim = kAny;
  int64_t axes = 1;
};

Widths WidthsOf(const Preset& preset) {
  const Spec& spec = preset.spec;
  if (preset.required_fields.empty()) {
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
  model->inputs = {
      {"POSITIONS", TensorRole::kPositions, Dtype::kInt64, PositionShape(widths.axes)},
      {"EMBEDDINGS", TensorRole::kEmbeddings, Dtype::kFloat32, rows, /*optional=*/true}};
  model->outputs = {{"ENCODING", TensorRole::kOutput, Dtype::kFloat32, rows}};
}

void AddRotary(const Widths& widths, Model* model) {
  const std::vector<int64_t> positions = PositionShape(widths.axes);
  const std::vector<int64_t> heads = {kAny, kAny, widths.head_dim};
  model->inputs = {{"POSITIONS", TensorRole::kPositions, Dtype::kInt64, positions},
                   {"Q", TensorRole::kQ, Dtype::kFloat32, heads},
                   {"K", TensorRole::kK, Dtype::kFloat32, heads, /*optional=*/true},
                   {"FROM_POSITIONS", TensorRole::kFromPositions, Dtype::kInt64, positions,
                    /*optional=*/true}};
  model->outputs = {{"Q_OUT", TensorRole::kOutput, Dtype::kFloat32, heads},
                    {"K_OUT", TensorRole::kOutput, Dtype::kFloat32, heads}};
}

void AddBias(BiasFamily family, Model* model) {
  const bool window = family == BiasFamily::kSwin;
  const bool buckets = family == BiasFamily::kDeberta;
  const bool table =
      family == BiasFamily::kT5 || family == BiasFamily::kClipped || family == BiasFamily::kSwin;
  const std::vector<int64_t> positions = PositionShape(window ? 2 : 1);
  const std::vector<int64_t> scores = {buckets ? 1 : kAny, kAny, kAny};
  model->inputs = {
      {"QUERY_POSITIONS", TensorRole::kQueryPositions, Dtype::kInt64, positions, window},
      {"KEY_POSITIONS", TensorRole::kKeyPositions, Dtype::kInt64, positions, window}};
  if (table) {
    model->inputs.push_back(
        {"TABLE", TensorRole::kTable, Dtype::kFloat32, {kAny, kAny}, /*optional=*/true});
  }
  if (!buckets) {
    model->inputs.push_back(
        {"SCORES", TensorRole::kScores, Dtype::kFloat32, scores, /*optional=*/true});
  }
  model->outputs = {
      {"BIAS", TensorRole::kOutput, buckets ? Dtype::kInt64 : Dtype::kFloat32, scores}};
}

Model ModelOf(const Preset& preset) {
  Model model;
  model.name = preset.name;
  model.summary = preset.summary;
  model.source = preset.source;
  model.required_parameters = preset.required_fields;
  const bool rotary = preset.spec.kind == SpecKind::kRotary;
  model.kind = rotary ? ModelKind::kRotary : ModelKind::kEncoding;
  if (rotary) {
    AddRotary(WidthsOf(preset), &model);
  } else {
    AddEncoding(WidthsOf(preset), &model);
  }
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

std::vector<Model> MakeModels() {
  std::vector<Model> models;
  for (const Preset& preset : Presets()) models.push_back(ModelOf(preset));
  for (const BiasPreset& preset : BiasPresets()) models.push_back(ModelOf(preset));
  std::sort(models.begin(), models.end(),
            [](const Model& a, const Model& b) { return a.name < b.name; });
  return models;
}

}  // namespace

absl::Span<const Model> Models() {
  static const auto* const models = new std::vector<Model>(MakeModels());
  return *models;
}

const Model* FindModel(std::string_view name) {
  const absl::Span<const Model> models = Models();
  const auto found = std::lower_bound(
      models.begin(), models.end(), name,
      [](const Model& model, std::string_view wanted) { return model.name < wanted; });
  return found != models.end() && found->name == name ? &*found : nullptr;
}

std::string NamesOf(absl::Span<const TensorSlot> slots) {
  return absl::StrJoin(slots, ", ",
                       [](std::string* out, const TensorSlot& slot) { out->append(slot.name); });
}

}  // namespace phasor::oip
