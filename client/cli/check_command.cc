// SPDX-License-Identifier: Apache-2.0
// The flags, the table and the verdict of check-cache.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cli/cache/check.h"
#include "client/cli/cache/diagnosis.h"
#include "client/cli/cache/dump.h"
#include "client/cli/commands.h"
#include "client/cli/layout_flags.h"
#include "client/cli/output.h"
#include "client/cli/spec_flags.h"
#include "kernels/base/invalid.h"
#include "kernels/base/json.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/key_layouts.h"
#include "kernels/spec/model_layers.h"

namespace phasor::cli {
namespace {

// What one run found.
struct CheckReport {
  std::vector<CheckedLayer> layers;
  std::vector<Diagnosis> diagnoses;
  std::vector<std::string> also_fit;
  std::vector<std::string> notes;

  bool fits() const { return diagnoses.empty(); }
};

// The specifications of the layers of a model, or the one of all layers.
struct LayerSpecs {
  bool by_layer = false;
  std::vector<std::optional<ResolvedSpec>> of;

  const std::optional<ResolvedSpec>* Of(int64_t layer) const {
    const auto at = static_cast<size_t>(by_layer ? layer : 0);
    return at < of.size() ? &of[at] : nullptr;
  }
};

// The part of a config.json that describes the text model.
absl::StatusOr<Json> TextConfig(const std::string& config_json) {
  PHASOR_ASSIGN_OR_RETURN(Json json, ParseJson(config_json, "--config"));
  const auto inner = json.find("text_config");
  if (inner != json.end() && inner->is_object()) {
    Json text = *inner;
    return text;
  }
  return json;
}

// What the readers of dumps need to know, beside the specifications.
absl::Status ReadModel(const std::string& config_json, ModelLayers* model) {
  if (config_json.empty()) return absl::OkStatus();
  PHASOR_ASSIGN_OR_RETURN(const Json config, TextConfig(config_json));
  const JsonObject object(config, "--config");
  const Json* const rank = object.Find("kv_lora_rank");
  if (rank != nullptr && rank->is_number_integer()) {
    PHASOR_RETURN_IF_ERROR(ReadJson(*rank, "--config.kv_lora_rank", &model->content_lanes));
  }
  const Json* const types = object.Find("layer_types");
  if (types == nullptr || !types->is_array()) return absl::OkStatus();
  for (size_t i = 0; i < types->size(); ++i) {
    const Json& type = (*types)[i];
    const bool window = type == "sliding_attention" || type == "chunked_attention";
    (window ? model->window_layers : model->full_layers).push_back(static_cast<int64_t>(i));
  }
  return absl::OkStatus();
}

std::string RotationText(const LayerCase& layer) {
  if (!layer.spec.has_value()) return "none";
  return layer.spec->rope_theta.has_value()
             ? StrCat("rope_theta ", absl::StrFormat("%.10g", *layer.spec->rope_theta))
             : "rotary";
}

std::string FormatLayers(const CheckReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [layer, outcome] : report.layers) {
    const KeyDifference& found = outcome.difference;
    rows.push_back({StrCat(layer.layer), RotationText(layer), ShortNumber(found.relative_rms()),
                    StrCat(found.bad_rows, " of ", outcome.rows), IndexText(found.first_bad_token),
                    IndexText(found.first_bad_slot), IndexText(found.first_bad_head)});
  }
  return FormatTable({"layer", "rotation", "relative rms", "bad rows", "token", "slot", "head"},
                     rows);
}

std::string FormatReport(const CheckReport& report) {
  std::string text = FormatLayers(report);
  const LayerCase& first = report.layers.front().layer;
  const size_t count = first.tokens->slots.size();
  absl::StrAppend(&text, count, count == 1 ? " token" : " tokens", " from position ",
                  first.tokens->from.front(), " to ", first.tokens->to.front(), ", tolerance ",
                  ShortNumber(first.tolerance), "\n");
  for (const std::string& note : report.notes) absl::StrAppend(&text, "note: ", note, "\n");
  for (const std::string& also : report.also_fit) {
    absl::StrAppend(&text, "not told apart by these dumps: ", also, "\n");
  }
  for (const Diagnosis& diagnosis : report.diagnoses) absl::StrAppend(&text, diagnosis.says, "\n");
  absl::StrAppend(&text, report.fits() ? "The keys fit the specification.\n"
                                       : "The keys do not fit the specification.\n");
  return text;
}

Json LayerJson(const CheckedLayer& checked) {
  Json json = {{"layer", checked.layer.layer},
               {"rotation", RotationText(checked.layer)},
               {"fits", checked.outcome.fits()},
               {"tolerance", checked.layer.tolerance},
               {"tokens", checked.layer.tokens->slots.size()},
               {"rows", checked.outcome.rows}};
  json.update(ToJson(checked.outcome.difference));
  return json;
}

Json ReportJson(const CheckReport& report) {
  Json json = {{"fits", report.fits()}, {"layers", Json::array()}, {"diagnoses", Json::array()}};
  for (const CheckedLayer& checked : report.layers) json["layers"].push_back(LayerJson(checked));
  for (const Diagnosis& diagnosis : report.diagnoses) {
    json["diagnoses"].push_back({{"layers", diagnosis.layers},
                                 {"changes", diagnosis.kinds},
                                 {"fits", diagnosis.fits},
                                 {"relative_rms", diagnosis.relative_rms},
                                 {"says", diagnosis.says}});
  }
  json["also_fit"] = report.also_fit;
  json["notes"] = report.notes;
  return json;
}

// A file's name may be no UTF-8.
std::string ReportText(const CheckReport& report) {
  return ReportJson(report).dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) +
         "\n";
}

class CheckCommand final : public Command {
 public:
  explicit CheckCommand(CLI::App& parent)
      : Command(parent, "check-cache",
                "Check that cached keys rotate as their model says, by one prompt at two offsets",
                Runs::kHere) {
    AddSpecFlags(*app(), spec_);
    AddDumpFlags();
    source_.layout.page_size = 0;  // by the tensor's shape
    AddLayoutFlags(*app(), source_.layout, source_.offset_bytes);
    AddTokenFlags();
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_RETURN_IF_ERROR(FindKeyLayout(source_.layout.name, "--layout").status());
    PHASOR_ASSIGN_OR_RETURN(const Client client, Client::Connect("inproc:", common_.Options()));
    CheckReport report;
    PHASOR_RETURN_IF_ERROR(FillSpecs());
    PHASOR_RETURN_IF_ERROR(FillCases(&report));
    PHASOR_RETURN_IF_ERROR(Check(client, &report));
    out << (common_.json ? ReportText(report) : FormatReport(report));
    return Verdict(report);
  }

 private:
  void AddDumpFlags() {
    app()
        ->add_option("--input", inputs_.first,
                     "Cache of the prompt at --from: .npy, .safetensors, a state that llama.cpp "
                     "saved, a description in JSON, or a file of bytes. {layer} in the name stands "
                     "for a layer's number")
        ->required();
    app()->add_option("--to-input", inputs_.second,
                      "Cache of the same prompt at --to; default --input");
    app()
        ->add_option("--tensor", source_.tensor,
                     "Tensor of a .safetensors; {layer} stands for the layer's number")
        ->default_val("key_cache.{layer}");
    app()
        ->add_option("--layer-numbers", numbers_,
                     "Which layers of the model --input holds, in order, comma separated; default "
                     "all")
        ->delimiter(',');
    app()
        ->add_option("--unrotated", unrotated_,
                     "Layers whose keys are not rotated, comma separated; default by --config")
        ->delimiter(',');
    app()->add_option("--sequence", sequences_.first,
                      "Sequence in a state of llama.cpp; default its only one");
    app()->add_option("--to-sequence", sequences_.second,
                      "Sequence in --to-input; default --sequence");
  }

  void AddTokenFlags() {
    app()->add_option("--from", tokens_.from,
                      "Position of the prompt's first token in --input; default 0, or as a state "
                      "of llama.cpp says");
    app()->add_option("--to", tokens_.to, "Its position in --to-input");
    app()->add_option("--count", tokens_.count, "Tokens to compare; default all");
    app()->add_option("--first", tokens_.first, "Place of the first token in the pages of --input");
    app()->add_option("--to-first", tokens_.to_first, "Its place in --to-input; default --first");
    app()
        ->add_option("--block-table", tokens_.block_table,
                     "Pages of the prompt, comma separated; default all in order")
        ->delimiter(',');
    app()
        ->add_option("--to-block-table", tokens_.to_block_table,
                     "Its pages in --to-input; default --block-table")
        ->delimiter(',');
    app()->add_option("--tolerance", tolerance_,
                      "Relative RMS difference that a row may have; default by the code and the "
                      "positions");
  }

  absl::Status FillSpecs() {
    specs_.by_layer = !spec_.config_json.empty() && !spec_.layer_type.has_value();
    if (specs_.by_layer) {
      PHASOR_ASSIGN_OR_RETURN(const ResolvedModel model, ResolveModelPart(spec_));
      for (const ModelLayer& layer : model.parts[0].layers) {
        specs_.of.emplace_back();
        if (layer.spec.has_value()) specs_.of.back() = model.specs[*layer.spec];
      }
      model_.count = static_cast<int64_t>(specs_.of.size());
    } else {
      PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(spec_));
      if (resolved.kind != SpecKind::kRotary) {
        return Invalid("--kind: the specification is an encoding; must be rotary");
      }
      specs_.of = {resolved};
    }
    for (const int64_t layer : unrotated_) {
      if (layer < 0 || layer >= 512)
        return Invalid("--unrotated: ", layer, "; must be in [0, 512)");
    }
    model_.head_dim = [this](int64_t layer) -> int64_t {
      const auto* const spec = specs_.Of(layer);
      return spec == nullptr || !spec->has_value() ? 0 : (*spec)->head_dim;
    };
    return ReadModel(spec_.config_json, &model_);
  }

  absl::StatusOr<Dump> Open(const std::string& path, std::optional<int64_t> sequence) {
    DumpOptions options{.common = source_, .numbers = numbers_, .sequence = sequence};
    options.common.file = path;
    if (app()->count("--layers") > 0) options.count = source_.layout.layers;
    if (app()->count("--hadamard") > 0) options.hadamard = source_.layout.hadamard;
    if (app()->count("--code") > 0) options.common.code = source_.layout.code;
    return OpenDump(options, model_);
  }

  // Pairs the layers of both dumps with their specifications.
  absl::Status FillCases(CheckReport* report) {
    const std::string& to_path = inputs_.second.empty() ? inputs_.first : inputs_.second;
    const auto to_sequence = sequences_.second.has_value() ? sequences_.second : sequences_.first;
    PHASOR_ASSIGN_OR_RETURN(const Dump from, Open(inputs_.first, sequences_.first));
    PHASOR_ASSIGN_OR_RETURN(const Dump to, Open(to_path, to_sequence));
    report->notes = from.notes;
    if (to_path != inputs_.first) {
      report->notes.insert(report->notes.end(), to.notes.begin(), to.notes.end());
    }
    if (from.layers.size() != to.layers.size()) {
      return Invalid("--to-input: has keys of ", to.layers.size(), " layers; must be those of ",
                     "--input (", from.layers.size(), ")");
    }
    // Layers with one form share their list of tokens.
    std::shared_ptr<const TokenPairs> tokens;
    size_t like = 0;
    for (size_t i = 0; i < from.layers.size(); ++i) {
      LayerCase layer{.layer = from.layers[i].layer, .from = from.layers[i], .to = to.layers[i]};
      if (layer.to.layer != layer.layer) {
        return Invalid("--to-input: has layer ", layer.to.layer, " where --input has ", layer.layer,
                       "; must have the same layers");
      }
      if (tokens == nullptr || !SamePlaces(from.layers[like], layer.from) ||
          !SamePlaces(to.layers[like], layer.to)) {
        PHASOR_ASSIGN_OR_RETURN(TokenPairs pairs, PairTokens(layer.from, layer.to, tokens_));
        tokens = std::make_shared<const TokenPairs>(std::move(pairs));
        like = i;
      }
      layer.tokens = tokens;
      PHASOR_RETURN_IF_ERROR(FillSpec(&layer));
      layer.tolerance = tolerance_.value_or(GateTolerance(layer.from.layout.code, *layer.tokens));
      report->layers.push_back({std::move(layer), {}});
    }
    return absl::OkStatus();
  }

  static bool SamePlaces(const DumpLayer& a, const DumpLayer& b) {
    return a.cells == b.cells && a.layout.pages == b.layout.pages &&
           a.layout.page_size == b.layout.page_size;
  }

  absl::Status FillSpec(LayerCase* layer) const {
    const auto* const spec = specs_.Of(layer->layer);
    if (spec == nullptr) {
      return Invalid("--input: has keys of layer ", layer->layer,
                     "; must be a layer of the model (", specs_.of.size(), ")");
    }
    const bool rotates = spec->has_value() && std::find(unrotated_.begin(), unrotated_.end(),
                                                        layer->layer) == unrotated_.end();
    if (rotates) layer->spec = ToSpec(**spec);
    return absl::OkStatus();
  }

  absl::Status Check(const Client& client, CheckReport* report) const {
    std::vector<CheckedLayer> good, bad;
    for (CheckedLayer& checked : report->layers) {
      PHASOR_ASSIGN_OR_RETURN(checked.outcome, CompareLayer(client, checked.layer,
                                                            std::numeric_limits<int64_t>::max()));
      (checked.outcome.fits() ? good : bad).push_back(checked);
    }
    const ModelSpecs model = DistinctSpecs();
    PHASOR_ASSIGN_OR_RETURN(report->diagnoses, Diagnose(client, bad, model));
    PHASOR_ASSIGN_OR_RETURN(Doubts doubts, FindDoubts(client, good, model));
    report->also_fit = std::move(doubts.also_fit);
    for (Diagnosis& wrong : doubts.wrong) report->diagnoses.push_back(std::move(wrong));
    return absl::OkStatus();
  }

  ModelSpecs DistinctSpecs() const {
    ModelSpecs model;
    for (size_t i = 0; i < specs_.of.size(); ++i) {
      if (!specs_.of[i].has_value()) continue;
      const bool known = std::any_of(model.begin(), model.end(), [&](const auto& entry) {
        return entry.second == *specs_.of[i];
      });
      if (!known) model.emplace_back(static_cast<int64_t>(i), *specs_.of[i]);
    }
    return model;
  }

  static absl::Status Verdict(const CheckReport& report) {
    if (report.fits()) return absl::OkStatus();
    size_t bad = 0;
    for (const Diagnosis& diagnosis : report.diagnoses) bad += diagnosis.layers.size();
    return absl::DataLossError(StrCat("--input: ", bad, " of ", report.layers.size(),
                                      " layers do not fit the specification; ",
                                      report.diagnoses.front().says));
  }

  Spec spec_;
  LayerSpecs specs_;
  ModelLayers model_;
  LayerSource source_;
  std::pair<std::string, std::string> inputs_;
  std::pair<std::optional<int64_t>, std::optional<int64_t>> sequences_;
  std::vector<int64_t> numbers_;
  std::vector<int64_t> unrotated_;
  TokenOptions tokens_;
  std::optional<double> tolerance_;
};

}  // namespace

std::unique_ptr<Command> MakeCheckCommand(CLI::App& parent) {
  return std::make_unique<CheckCommand>(parent);
}

}  // namespace phasor::cli
