// SPDX-License-Identifier: Apache-2.0
// Formats tensors, specs and presets as text tables and as JSON.
#include "client/cli/output.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec_json.h"

namespace phasor::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
T Load(const TensorView& tensor, int64_t i) {
  T value;
  std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// The values of dimension `d` and those below it, beginning with element `next`, which it advances.
Json Nested(const TensorView& tensor, size_t d, int64_t& next) {
  if (d == tensor.desc.shape.size()) return ElementAt(tensor, next++);
  Json list = Json::array();
  for (int64_t i = 0; i < tensor.desc.shape[d]; ++i) list.push_back(Nested(tensor, d + 1, next));
  return list;
}

// The index of a row over all dimensions but the last: "[3, 1]".
std::string RowIndex(const std::vector<int64_t>& shape, int64_t row) {
  std::vector<int64_t> index(shape.size() - 1);
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = row % shape[d];
    row /= shape[d];
  }
  return StrCat("[", absl::StrJoin(index, ", "), "]");
}

// Appends a line without trailing blanks.
void AppendLine(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                std::string& text) {
  std::string line;
  for (size_t c = 0; c < cells.size(); ++c) {
    line += (c == 0 ? "" : "  ") + cells[c] + std::string(widths[c] - cells[c].size(), ' ');
  }
  text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

const std::vector<std::string> kLayerHeader = {"layers",  "kind",      "lanes", "base",
                                               "scaling", "amplitude", "spec"};

// "0-4,6" of ascending numbers.
std::string Ranges(const std::vector<size_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += StrCat(text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += StrCat("-", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::vector<std::string> LayerRow(const ModelSpec& spec) {
  const int64_t begin = spec.spec.rotary_begin.value_or(0);
  const Json scaling = ToJson(spec.spec)["rope_scaling"];
  return {
      StrCat(begin, "-", begin + spec.spec.rotary_dim.value_or(spec.width) - 1, " of ", spec.width),
      StrCat(spec.spec.rope_theta.value_or(0)), scaling.is_null() ? "" : scaling.dump(),
      absl::StrFormat("%.17g", spec.amplitude), spec.fingerprint};
}

// A row for each kind of layer in the order of their first layers.
std::vector<std::vector<std::string>> LayerRows(const ModelDetails& model, const ModelPart& part) {
  std::vector<ModelLayer> kinds;
  std::vector<std::vector<size_t>> numbers;
  for (size_t i = 0; i < part.layers.size(); ++i) {
    const auto found = std::find(kinds.begin(), kinds.end(), part.layers[i]);
    const size_t kind = found - kinds.begin();
    if (found == kinds.end()) {
      kinds.push_back(part.layers[i]);
      numbers.emplace_back();
    }
    numbers[kind].push_back(i);
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    std::vector<std::string> row = {Ranges(numbers[kind]), kinds[kind].layer_type};
    const std::vector<std::string> more = kinds[kind].spec.has_value()
                                              ? LayerRow(model.specs[*kinds[kind].spec])
                                              : std::vector<std::string>{"none: not rotated"};
    row.insert(row.end(), more.begin(), more.end());
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::string& cell : header) widths.push_back(cell.size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      if (c == widths.size()) widths.push_back(0);
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string text;
  if (!header.empty()) AppendLine(header, widths, text);
  for (const auto& row : rows) AppendLine(row, widths, text);
  return text;
}

double ElementAt(const TensorView& tensor, int64_t i) {
  switch (tensor.desc.dtype) {
    case Dtype::kFloat64:
      return Load<double>(tensor, i);
    case Dtype::kFloat32:
      return Load<float>(tensor, i);
    case Dtype::kFloat16:
      return ToFloat(Load<Float16>(tensor, i));
    case Dtype::kBFloat16:
      return ToFloat(Load<BFloat16>(tensor, i));
    case Dtype::kInt32:
      return Load<int32_t>(tensor, i);
    case Dtype::kInt64:
      return static_cast<double>(Load<int64_t>(tensor, i));
    case Dtype::kFloat8E4M3:
      return ToFloat(Load<Float8E4M3>(tensor, i));
    case Dtype::kFloat8E5M2:
      return ToFloat(Load<Float8E5M2>(tensor, i));
  }
  return 0;
}

std::string FormatTensor(const TensorView& tensor, int64_t columns) {
  const std::vector<int64_t>& shape = tensor.desc.shape;
  const int64_t width = shape.back();
  const int64_t shown = columns == 0 ? width : std::min(columns, width);
  const int64_t count = tensor.bytes / SizeOf(tensor.desc.dtype);
  const bool whole = tensor.desc.dtype == Dtype::kInt32 || tensor.desc.dtype == Dtype::kInt64;
  std::vector<std::vector<std::string>> rows;
  for (int64_t row = 0; row * width < count; ++row) {
    std::vector<std::string> cells = {RowIndex(shape, row)};
    for (int64_t c = 0; c < shown; ++c) {
      const double value = ElementAt(tensor, row * width + c);
      cells.push_back(absl::StrFormat(whole ? "%9.0f" : "%9.6f", value));
    }
    if (shown < width) cells.push_back(StrCat("... ", width - shown, " more"));
    rows.push_back(std::move(cells));
  }
  return StrCat(Name(tensor.desc.dtype), " [", absl::StrJoin(shape, ", "), "]\n",
                FormatTable({}, rows));
}

Json ToJson(const TensorView& tensor) {
  int64_t next = 0;
  return {{"dtype", Name(tensor.desc.dtype)},
          {"shape", tensor.desc.shape},
          {"values", Nested(tensor, 0, next)}};
}

Json ToJson(const RunInfo& info) {
  return {{"spec_fingerprint", info.spec_fingerprint},
          {"numerics_version", info.numerics_version},
          {"backend", info.backend}};
}

std::string FormatInfo(const RunInfo& info) {
  return StrCat("spec ", info.spec_fingerprint, ", numerics ", info.numerics_version, ", backend ",
                info.backend, "\n");
}

std::string FormatTurns(Frequency frequency) {
  const std::string fraction = absl::StrFormat("0x0.%016x", frequency.fraction);
  return frequency.whole == 0 ? fraction : StrCat(frequency.whole, " + ", fraction);
}

namespace {

// The place of a pair: "3, 7"; "3, 7 -> 6, 7" if the output has it elsewhere; "sin 3, cos 7".
std::string FormatPlace(const SpecDetails::Pair& pair) {
  if (pair.first_lane.has_value()) {
    const std::string in = StrCat(*pair.first_lane, ", ", *pair.second_lane);
    const std::string out = StrCat(*pair.first_lane_out, ", ", *pair.second_lane_out);
    return in == out ? in : StrCat(in, " -> ", out);
  }
  std::string place;
  if (pair.sine_column) place = StrCat("sin ", *pair.sine_column);
  if (pair.cosine_column) {
    place += StrCat(place.empty() ? "" : ", ", "cos ", *pair.cosine_column);
  }
  return place;
}

std::string FormatDifference(const parity::Report& report) {
  const parity::Difference& d = report.largest;
  return absl::StrFormat(
      "largest difference of upstream's arithmetic (PARITY) from exact, positions below %d (%d "
      "looked at), %s tensors\n"
      "  angle           %.3g radians, at %d\n"
      "  sine or cosine  %.3g, at %d\n",
      report.context_length, report.positions, std::string(Name(report.model)), d.angle,
      d.angle_position, d.value, d.value_position);
}

Json DifferenceJson(const parity::Report& report) {
  const parity::Difference& d = report.largest;
  return {{"context_length", report.context_length},
          {"positions", report.positions},
          {"dtype", Name(report.model)},
          {"largest_angle_difference", d.angle},
          {"largest_angle_position", d.angle_position},
          {"largest_value_difference", d.value},
          {"largest_value_position", d.value_position},
          {"inv_freq", report.inv_freq}};
}

}  // namespace

std::string FormatDetails(const SpecDetails& details) {
  std::vector<std::vector<std::string>> fields;
  const Json spec = ToJson(details.spec);
  for (const auto& [name, value] : spec.items()) {
    fields.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  fields.push_back({"amplitude", absl::StrFormat("%.17g", details.amplitude)});
  fields.push_back({"width", StrCat(details.width)});
  fields.push_back({"spec_fingerprint", details.info.spec_fingerprint});
  fields.push_back({"numerics_version", StrCat(details.info.numerics_version)});
  const bool heads = !details.pairs.empty() && details.pairs.back().head > 0;
  const bool rotary = details.spec.kind == SpecKind::kRotary;
  std::vector<std::string> header = {"pair",
                                     "axis",
                                     "radians per position",
                                     "turns per position (exact)",
                                     "phase offset (turns)",
                                     rotary ? "lanes" : "columns"};
  if (heads) header.insert(header.begin(), "head");
  std::vector<std::vector<std::string>> pairs;
  for (const SpecDetails::Pair& pair : details.pairs) {
    std::vector<std::string> row = {
        StrCat(pair.pair),
        StrCat(pair.axis),
        absl::StrFormat("%.17g", pair.inv_freq),
        FormatTurns(pair.turns),
        pair.phase_offset == 0 ? "0" : FormatTurns({0, pair.phase_offset}),
        FormatPlace(pair)};
    if (heads) row.insert(row.begin(), StrCat(pair.head));
    pairs.push_back(std::move(row));
  }
  std::string text = FormatTable({}, fields) + "\n" + FormatTable(header, pairs);
  if (details.parity_difference) text += "\n" + FormatDifference(*details.parity_difference);
  return text;
}

Json ToJson(const SpecDetails& details) {
  Json pairs = Json::array();
  for (const SpecDetails::Pair& pair : details.pairs) {
    Json json = {{"head", pair.head},
                 {"pair", pair.pair},
                 {"axis", pair.axis},
                 {"inv_freq", pair.inv_freq},
                 {"turns_whole", pair.turns.whole},
                 {"turns_fraction", absl::StrFormat("0x%016x", pair.turns.fraction)},
                 {"phase_offset", absl::StrFormat("0x%016x", pair.phase_offset)}};
    const auto put = [&json](const char* name, std::optional<int64_t> value) {
      if (value.has_value()) json[name] = *value;
    };
    put("sine_column", pair.sine_column);
    put("cosine_column", pair.cosine_column);
    put("first_lane", pair.first_lane);
    put("second_lane", pair.second_lane);
    put("first_lane_out", pair.first_lane_out);
    put("second_lane_out", pair.second_lane_out);
    pairs.push_back(std::move(json));
  }
  Json json = {{"spec", ToJson(details.spec)},
               {"width", details.width},
               {"amplitude", details.amplitude},
               {"info", ToJson(details.info)},
               {"pairs", std::move(pairs)}};
  if (details.parity_difference) json["difference"] = DifferenceJson(*details.parity_difference);
  return json;
}

std::string FormatModel(const ModelDetails& model) {
  std::string text;
  for (const ModelPart& part : model.parts) {
    if (!text.empty()) text += "\n";
    text += part.sub_config.empty() ? "model" : "sub_config " + part.sub_config;
    if (!part.error.empty()) {
      text += StrCat(": ", part.error, "\n");
      continue;
    }
    text += StrCat(": ", part.model_type, ", ", part.layers.size(), " layers, fingerprint ",
                   part.fingerprint, "\n", FormatTable(kLayerHeader, LayerRows(model, part)));
  }
  return text;
}

Json ToJson(const ModelDetails& model) {
  Json json = {{"specs", Json::array()}, {"parts", Json::array()}};
  for (const ModelSpec& spec : model.specs) {
    json["specs"].push_back({{"spec", ToJson(spec.spec)},
                             {"fingerprint", spec.fingerprint},
                             {"amplitude", spec.amplitude},
                             {"width", spec.width}});
  }
  for (const ModelPart& part : model.parts) {
    Json layers = Json::array();
    for (const ModelLayer& layer : part.layers) {
      layers.push_back({{"layer_type", layer.layer_type},
                        {"spec", layer.spec.has_value() ? Json(*layer.spec) : Json()}});
    }
    Json entry = {{"sub_config", part.sub_config}};
    if (part.error.empty()) {
      entry["model_type"] = part.model_type;
      entry["fingerprint"] = part.fingerprint;
      entry["layers"] = std::move(layers);
    } else {
      entry["error"] = part.error;
    }
    json["parts"].push_back(std::move(entry));
  }
  return json;
}

std::string ShortNumber(double value) { return absl::StrFormat("%.3g", value); }

std::string IndexText(int64_t index) { return index < 0 ? "-" : StrCat(index); }

Json ToJson(const KeyDifference& found) {
  Json json = {{"relative_rms", found.relative_rms()},
               {"rms", found.rms},
               {"max_abs", found.max_abs},
               {"reference_rms", found.reference_rms},
               {"bad_rows", found.bad_rows}};
  if (found.bad_rows == 0) return json;
  json["first_bad_token"] = found.first_bad_token;
  json["first_bad_slot"] = found.first_bad_slot;
  json["first_bad_head"] = found.first_bad_head;
  return json;
}

namespace {

std::vector<std::pair<const char*, int64_t>> LimitsOf(const ServerInfo& info) {
  return {{"max_message_bytes", info.max_message_bytes},
          {"max_header_bytes", info.max_header_bytes},
          {"max_inflight_bytes", info.max_inflight_bytes},
          {"inline_bytes", info.inline_bytes},
          {"max_batch_items", info.max_batch_items}};
}

}  // namespace

std::string FormatServerInfo(const ServerInfo& info) {
  std::string text = StrCat("version ", info.version, ", numerics version ", info.numerics_version,
                            "\nbackend ", absl::StrJoin(info.backends, ", "), ", ", info.cpu_target,
                            info.cpu_target == "AVX3" ? " (AVX-512), " : ", ", info.cpu_threads,
                            info.cpu_threads == 1 ? " thread\n" : " threads\n");
  if (!info.listeners.empty()) {
    text += StrCat("listeners ", absl::StrJoin(info.listeners, ", "), "\n");
    for (const auto& [name, limit] : LimitsOf(info)) {
      if (limit > 0) text += StrCat("limit ", name, " ", limit, "\n");
    }
    const bool leases = !info.lease_socket.empty();
    text += StrCat("lease socket ", leases ? info.lease_socket : "none", "\n");
  }
  for (const EncoderInfo& encoder : info.encoders) {
    text += StrCat("encoder ", encoder.name, ", spec ", encoder.spec_fingerprint, "\n");
  }
  for (const ServerDevice& device : info.devices) {
    text += StrCat("device ", device.number, ": ", device.name, ", ", device.uuid,
                   device.working ? ", works\n" : StrCat(", lost: ", device.error, "\n"));
  }
  return text;
}

Json ToJson(const ServerInfo& info) {
  Json devices = Json::array();
  for (const ServerDevice& device : info.devices) {
    devices.push_back({{"number", device.number},
                       {"name", device.name},
                       {"uuid", device.uuid},
                       {"working", device.working},
                       {"error", device.error}});
  }
  Json limits = Json::object();
  for (const auto& [name, limit] : LimitsOf(info)) limits[name] = limit;
  Json encoders = Json::array();
  for (const EncoderInfo& encoder : info.encoders) {
    encoders.push_back({{"name", encoder.name}, {"spec_fingerprint", encoder.spec_fingerprint}});
  }
  return {{"version", info.version},
          {"numerics_version", info.numerics_version},
          {"backends", info.backends},
          {"cpu_target", info.cpu_target},
          {"cpu_threads", info.cpu_threads},
          {"listeners", info.listeners},
          {"limits", limits},
          {"lease_socket", info.lease_socket},
          {"encoders", encoders},
          {"devices", devices}};
}

std::string FormatPresets(absl::Span<const Preset> presets) {
  std::vector<std::vector<std::string>> rows;
  for (const Preset& preset : presets) {
    rows.push_back({preset.name, absl::StrJoin(preset.required_fields, ", "),
                    preset.verified ? "" : "unverified", preset.summary});
  }
  return FormatTable({"name", "you give", "", "what it is"}, rows);
}

Json ToJson(const Preset& preset) {
  return {
      {"name", preset.name},
      {"summary", preset.summary},
      {"source", preset.source},
      {"verified", preset.verified},
      {"note", preset.note},
      {"context_length", preset.context_length.has_value() ? Json(*preset.context_length) : Json()},
      {"required_fields", preset.required_fields},
      {"spec", ToJson(preset.spec)}};
}

}  // namespace phasor::cli
