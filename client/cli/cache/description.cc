// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/description.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_replace.h"
#include "client/cli/spec_flags.h"
#include "kernels/base/invalid.h"
#include "kernels/base/json.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/key_layouts.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor::cli {
namespace {

constexpr std::string_view kNumber = "{layer}";

constexpr std::string_view kFields[] = {
    "layout",     "code",       "pages",      "page_size",    "heads",        "head_dim",
    "page_bytes", "slot_bytes", "head_bytes", "lane_bytes",   "group_bytes",  "group_lanes",
    "row_bytes",  "scales",     "scale",      "hadamard",     "file",         "tensor",
    "index",      "layer",      "layers",     "offset_bytes", "lanes_offset", "layers_in_tensor"};

// Reads a member that has a default.
template <typename T>
absl::Status ReadInto(const JsonObject& json, std::string_view key, T* out) {
  std::optional<T> value;
  PHASOR_RETURN_IF_ERROR(json.Read(key, &value));
  if (value.has_value()) *out = *std::move(value);
  return absl::OkStatus();
}

absl::Status CheckKeys(const JsonObject& json, absl::Span<const std::string_view> known) {
  if (!json.json().is_object()) return WrongJson(json.path(), json.json(), "an object");
  for (const auto& [key, value] : json.json().items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return UnknownKey(json.path(), key, known);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadCode(const JsonObject& json, std::optional<KeyCode>* code) {
  const Json* const name = json.Find("code");
  if (name == nullptr) return absl::OkStatus();
  std::vector<std::string> names;
  for (const KeyCode known : kKeyCodes) {
    names.push_back(FlagName(Name(known)));
    if (name->is_string() && name->get<std::string>() == names.back()) *code = known;
  }
  return code->has_value() ? absl::OkStatus() : WrongName(json.PathOf("code"), *name, names);
}

absl::Status ReadScales(const JsonObject& json, KeyLayout* layout) {
  const Json* const member = json.Find("scales");
  if (member == nullptr) return absl::OkStatus();
  constexpr std::string_view kScales[] = {"offset", "page_bytes", "slot_bytes", "head_bytes"};
  const JsonObject scales(*member, json.PathOf("scales"));
  PHASOR_RETURN_IF_ERROR(CheckKeys(scales, kScales));
  KeyScales& out = layout->scales.emplace();
  PHASOR_RETURN_IF_ERROR(ReadInto(scales, "offset", &out.offset));
  PHASOR_RETURN_IF_ERROR(ReadInto(scales, "page_bytes", &out.page_bytes));
  PHASOR_RETURN_IF_ERROR(ReadInto(scales, "slot_bytes", &out.slot_bytes));
  return ReadInto(scales, "head_bytes", &out.head_bytes);
}

// Reads what a layer and all layers can have over `source`.
absl::Status ReadSource(const JsonObject& json, const std::string& folder, LayerSource* source) {
  PHASOR_RETURN_IF_ERROR(CheckKeys(json, kFields));
  KeyLayout& layout = source->layout;
  std::string file;
  PHASOR_RETURN_IF_ERROR(ReadInto(json, "file", &file));
  if (!file.empty()) source->file = (std::filesystem::path(folder) / file).string();
  PHASOR_RETURN_IF_ERROR(ReadInto(json, "tensor", &source->tensor));
  PHASOR_RETURN_IF_ERROR(json.Read("index", &source->index));
  PHASOR_RETURN_IF_ERROR(ReadInto(json, "offset_bytes", &source->offset_bytes));
  PHASOR_RETURN_IF_ERROR(ReadInto(json, "layout", &layout.name));
  PHASOR_RETURN_IF_ERROR(FindKeyLayout(layout.name, json.PathOf("layout")).status());
  PHASOR_RETURN_IF_ERROR(ReadCode(json, &source->code));
  const std::pair<std::string_view, int64_t*> sizes[] = {
      {"pages", &layout.pages},       {"page_size", &layout.page_size},
      {"heads", &layout.heads},       {"head_dim", &layout.head_dim},
      {"hadamard", &layout.hadamard}, {"layers_in_tensor", &layout.layers}};
  for (const auto& [name, field] : sizes) PHASOR_RETURN_IF_ERROR(ReadInto(json, name, field));
  const std::pair<std::string_view, std::optional<int64_t>*> distances[] = {
      {"page_bytes", &layout.page_bytes},   {"slot_bytes", &layout.slot_bytes},
      {"head_bytes", &layout.head_bytes},   {"lane_bytes", &layout.lane_bytes},
      {"group_bytes", &layout.group_bytes}, {"group_lanes", &layout.group_lanes},
      {"row_bytes", &layout.row_bytes},     {"lanes_offset", &layout.lanes_offset}};
  for (const auto& [name, field] : distances) PHASOR_RETURN_IF_ERROR(json.Read(name, field));
  std::optional<double> scale;
  PHASOR_RETURN_IF_ERROR(json.Read("scale", &scale));
  if (scale.has_value()) layout.scale = static_cast<float>(*scale);
  return ReadScales(json, &layout);
}

// The sizes that a letter of an order stands for, as extents of a shape.
struct Extent {
  char letter;
  int64_t extent;
};

// Pairs the dimensions of an order with those of a shape. A shape may have layers before all
// others, may leave out the pages, and then may join heads and lanes ("HD" in one). Empty: does not
// fit.
std::vector<Extent> Pair(std::string order, absl::Span<const int64_t> shape) {
  const size_t pages = order.find('B');
  if (shape.size() == order.size() + 1 && order.find('L') == std::string::npos) {
    order.insert(0, "L");
  } else if (shape.size() < order.size() && pages != std::string::npos) {
    order.erase(pages, 1);
    if (shape.size() + 1 == order.size() && order.ends_with("HD")) {
      order.replace(order.size() - 2, 2, "J");
    }
  }
  std::vector<Extent> extents;
  if (order.size() != shape.size()) return extents;
  for (size_t i = 0; i < order.size(); ++i) extents.push_back({order[i], shape[i]});
  return extents;
}

}  // namespace

absl::StatusOr<CacheDescription> ParseDescription(std::string_view text, const std::string& folder,
                                                  std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const Json parsed, ParseJson(text, path));
  const JsonObject json(parsed, std::string(path));
  CacheDescription description;
  description.common.layout.page_size = 0;
  PHASOR_RETURN_IF_ERROR(ReadSource(json, folder, &description.common));
  if (json.Find("layer") != nullptr) {
    return Invalid(json.PathOf("layer"), ": given for all layers; must be in an entry of layers");
  }
  const Json* const layers = json.Find("layers");
  if (layers == nullptr) return description;
  if (!layers->is_array()) {
    int64_t count = 0;
    PHASOR_RETURN_IF_ERROR(ReadJson(*layers, json.PathOf("layers"), &count));
    if (count < 1 || count > kMostLayers) {
      return Invalid(json.PathOf("layers"), ": ", count, "; must be in [1, ", kMostLayers, "]");
    }
    description.count = count;
    return description;
  }
  if (layers->empty() || layers->size() > static_cast<size_t>(kMostLayers)) {
    return Invalid(json.PathOf("layers"), ": ", layers->size(), " entries; must be in [1, ",
                   kMostLayers, "]");
  }
  for (size_t i = 0; i < layers->size(); ++i) {
    const JsonObject entry((*layers)[i], StrCat(json.PathOf("layers"), "[", i, "]"));
    LayerSource source = description.common;
    PHASOR_RETURN_IF_ERROR(ReadSource(entry, folder, &source));
    source.layer = static_cast<int64_t>(i);
    PHASOR_RETURN_IF_ERROR(ReadInto(entry, "layer", &source.layer));
    if (source.layer < 0 || source.layer >= kMostLayers) {
      return Invalid(entry.PathOf("layer"), ": ", source.layer, "; must be in [0, ", kMostLayers,
                     ")");
    }
    description.layers.push_back(ForLayer(source, source.layer, source.index.value_or(0)));
  }
  return description;
}

LayerSource ForLayer(const LayerSource& common, int64_t layer, int64_t place) {
  LayerSource source = common;
  source.layer = layer;
  const std::string number = StrCat(layer);
  const bool own = source.file.find(kNumber) != std::string::npos ||
                   source.tensor.find(kNumber) != std::string::npos;
  source.file = absl::StrReplaceAll(source.file, {{std::string(kNumber), number}});
  source.tensor = absl::StrReplaceAll(source.tensor, {{std::string(kNumber), number}});
  if (!source.index.has_value()) source.index = own ? 0 : place;
  return source;
}

std::string ValuesName(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"key", "value"}, {"Key", "Value"}, {"k_", "v_"}, {".k", ".v"},
      {"_k", "_v"},     {"k.", "v."},     {"k-", "v-"}, {"-k", "-v"}};
  for (const auto& [keys, values] : kNames) {
    const size_t at = name.rfind(keys);
    if (at == std::string_view::npos) continue;
    return std::string(name).replace(at, keys.size(), values);
  }
  return "";
}

absl::Status SizesFromShape(absl::Span<const int64_t> shape, std::string_view path,
                            KeyLayout* layout) {
  std::string order = "BNHD";
  for (const NamedKeyLayout& named : NamedKeyLayouts()) {
    if (named.name == layout->name) order = named.order;
  }
  const bool complete = layout->pages > 0 && layout->page_size > 0 && layout->heads > 0;
  const std::string_view shown = layout->name.empty() ? "dense" : std::string_view(layout->name);
  const std::vector<Extent> extents = Pair(order, shape);
  const std::string said = ShapeText(shape);
  if (extents.empty()) {
    if (complete) return absl::OkStatus();
    return InvalidAt(path, "shape ", said, " is not that of layout ", shown, " (", order,
                     "); must be that, or give --pages, --page-size and --heads");
  }
  KeyLayout sizes{.pages = 1, .page_size = 0, .heads = 0, .head_dim = 0};
  int64_t joined = 0;
  for (const auto& [letter, extent] : extents) {
    if (extent < 1) return InvalidAt(path, "shape ", said, " is empty; must have keys");
    if (letter == 'B') sizes.pages = extent;
    if (letter == 'N') sizes.page_size = extent;
    if (letter == 'H') sizes.heads = extent;
    if (letter == 'D') sizes.head_dim = extent;
    if (letter == 'P') sizes.head_dim = extent / 2;
    if (letter == 'X') sizes.head_dim = extent * shape.back();
    if (letter == 'L') sizes.layers = extent;
    if (letter == 'W') sizes.heads = 1;
    if (letter == 'J') joined = extent;
  }
  const std::pair<int64_t, int64_t*> found[] = {{sizes.pages, &layout->pages},
                                                {sizes.page_size, &layout->page_size},
                                                {sizes.heads, &layout->heads},
                                                {sizes.head_dim, &layout->head_dim}};
  for (const auto& [size, field] : found) {
    if (size == 0) continue;
    if (*field != 0 && *field != size) {
      return InvalidAt(path, "shape ", said, " has ", size, " in a dimension of layout ", shown,
                       " (", order, ") that is said to be ", *field, "; must agree");
    }
    *field = size;
  }
  layout->layers = std::max(layout->layers, sizes.layers);
  if (joined > 0 && layout->head_dim > 0 && layout->heads == 0) {
    layout->heads = joined / layout->head_dim;
  }
  return absl::OkStatus();
}

}  // namespace phasor::cli
