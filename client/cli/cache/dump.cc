// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/dump.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>

#include "client/cli/cache/llama_state.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/tensor/npy.h"
#include "kernels/tensor/safetensors.h"

namespace phasor::cli {
namespace {

constexpr int64_t kMostOfASize = int64_t{1} << 31;  // so that products of two fit
constexpr int64_t kMostBytes = int64_t{1} << 60;

// One tensor of a file, by its header.
struct FoundTensor {
  TensorDesc desc;
  int64_t begin = 0;
  std::string other_type = {};  // what it has in place of the dtype
};

absl::StatusOr<KeyCode> CodeOf(const FoundTensor& tensor, std::string_view path) {
  const std::string& other = tensor.other_type;
  if (other == "F8_E4M3") return KeyCode::kFloat8E4M3;
  if (other == "F8_E5M2") return KeyCode::kFloat8E5M2;
  if (!other.empty()) {
    return InvalidAt(path, "elements of ", other,
                     " do not say how keys are stored; must be given, "
                     "with --code");
  }
  if (tensor.desc.dtype == Dtype::kFloat32) return KeyCode::kFloat32;
  if (tensor.desc.dtype == Dtype::kFloat16) return KeyCode::kFloat16;
  if (tensor.desc.dtype == Dtype::kBFloat16) return KeyCode::kBFloat16;
  return InvalidAt(path, "elements of ", Name(tensor.desc.dtype),
                   "; must be FLOAT32, FLOAT16 or BFLOAT16");
}

// Opens the files of a dump. Each is mapped once, and its header read once. Threads: one.
class Opener {
 public:
  Opener(const DumpOptions& options, const ModelLayers& model) : options_(options), model_(model) {}

  absl::StatusOr<Dump> Run() {
    const std::string& path = options_.common.file;
    if (path.find("{layer}") == std::string::npos) {
      PHASOR_ASSIGN_OR_RETURN(const MappedFile file, Open(path));
      if (path.ends_with(".json")) {
        PHASOR_RETURN_IF_ERROR(AddDescribed(file));
        return Finish();
      }
      if (IsLlamaState(file.bytes())) {
        PHASOR_RETURN_IF_ERROR(AddLlamaState(file));
        return Finish();
      }
    }
    PHASOR_RETURN_IF_ERROR(AddLayers(options_.common, options_.count, options_.numbers));
    return Finish();
  }

 private:
  absl::StatusOr<MappedFile> Open(const std::string& path) {
    const auto found = files_.find(path);
    if (found != files_.end()) return found->second;
    PHASOR_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    files_[path] = file;
    return file;
  }

  absl::StatusOr<Dump> Finish() {
    std::sort(dump_.layers.begin(), dump_.layers.end(),
              [](const DumpLayer& a, const DumpLayer& b) { return a.layer < b.layer; });
    for (size_t i = 1; i < dump_.layers.size(); ++i) {
      if (dump_.layers[i].layer != dump_.layers[i - 1].layer) continue;
      return InvalidAt(options_.common.file, "layer ", dump_.layers[i].layer,
                       " is described twice; must be once");
    }
    return std::move(dump_);
  }

  absl::Status AddDescribed(const MappedFile& file) {
    const std::string& path = options_.common.file;
    const std::string folder = std::filesystem::path(path).parent_path().string();
    PHASOR_ASSIGN_OR_RETURN(const CacheDescription description,
                            ParseDescription(file.text(), folder, path));
    if (description.layers.empty()) {
      return AddLayers(description.common,
                       description.count.has_value() ? description.count : options_.count,
                       options_.numbers);
    }
    for (const LayerSource& source : description.layers) PHASOR_RETURN_IF_ERROR(Add(source));
    return absl::OkStatus();
  }

  // Adds layers of the same form: of these numbers, or as many as there are.
  absl::Status AddLayers(const LayerSource& common, std::optional<int64_t> count,
                         std::vector<int64_t> numbers) {
    if (common.file.empty()) {
      return InvalidAt(options_.common.file, "names no file; must have `file`");
    }
    if (count.has_value() && (*count < 1 || *count > kMostLayers)) {
      return InvalidAt(options_.common.file, "--layers of ", *count, "; must be in [1, ",
                       kMostLayers, "]");
    }
    const bool counted = count.has_value() || !numbers.empty();
    if (!count.has_value()) count = model_.count;
    if (numbers.empty()) {
      numbers.resize(static_cast<size_t>(count.value_or(1)));
      std::iota(numbers.begin(), numbers.end(), int64_t{0});
    }
    std::string missing;
    for (size_t i = 0; i < numbers.size(); ++i) {
      LayerSource source = ForLayer(common, numbers[i], static_cast<int64_t>(i));
      // A file of bytes that holds all layers.
      if (*source.index > 0) {
        source.layout.layers = std::max(source.layout.layers, static_cast<int64_t>(numbers.size()));
      }
      const absl::StatusOr<bool> exists = Exists(source);
      if (!exists.ok()) return exists.status();
      if (counted || *exists) {
        PHASOR_RETURN_IF_ERROR(Add(source));
      } else {
        absl::StrAppend(&missing, missing.empty() ? "" : ", ", numbers[i]);
      }
    }
    if (dump_.layers.empty()) {
      return Add(ForLayer(common, numbers.front(), 0));  // its error says what is missing
    }
    if (!missing.empty()) {
      dump_.notes.push_back(StrCat(common.file, ": has no keys of layers ", missing));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Exists(const LayerSource& source) {
    std::error_code error;
    if (!std::filesystem::exists(source.file, error)) return false;
    if (source.tensor.empty() || !source.file.ends_with(".safetensors")) return true;
    PHASOR_ASSIGN_OR_RETURN(const MappedFile file, Open(source.file));
    PHASOR_ASSIGN_OR_RETURN(const auto* const tensors, Tensors(source.file, file));
    return tensors->count(source.tensor) > 0;
  }

  using TensorMap = std::map<std::string, FoundTensor>;
  absl::StatusOr<const TensorMap*> Tensors(const std::string& path, const MappedFile& file) {
    const auto known = tensors_.find(path);
    if (known != tensors_.end()) return &known->second;
    PHASOR_ASSIGN_OR_RETURN(
        const std::vector<NamedTensor> tensors,
        ParseSafetensorsHeader(file.text(), static_cast<int64_t>(file.bytes().size()), path,
                               OtherTypes::kAccept));
    TensorMap& map = tensors_[path];
    for (const NamedTensor& tensor : tensors) {
      map[tensor.name] = {tensor.tensor, tensor.data_begin, tensor.other_type};
    }
    return &map;
  }

  // The tensor of a source; nullopt: a file of bytes, which says nothing.
  absl::StatusOr<std::optional<FoundTensor>> Find(const LayerSource& source,
                                                  const MappedFile& file) {
    if (source.file.ends_with(".npy")) {
      PHASOR_ASSIGN_OR_RETURN(const NpyHeader header,
                              ParseNpyHeader(file.text(), static_cast<int64_t>(file.bytes().size()),
                                             /*u2_as_bf16=*/true, source.file, /*bytes=*/true));
      const bool one_byte = SizeOf(header.tensor.dtype) == 1;
      return FoundTensor{header.tensor, header.data_begin, one_byte ? "u1" : ""};
    }
    if (!source.file.ends_with(".safetensors")) return std::nullopt;
    PHASOR_ASSIGN_OR_RETURN(const TensorMap* const map, Tensors(source.file, file));
    const auto found = map->find(source.tensor);
    if (found != map->end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : *map) names.push_back(name);
    return InvalidAt(source.file, "has no tensor '", Shown(source.tensor), "'",
                     DidYouMean(source.tensor, names), " must be one of its ", names.size(),
                     " tensors: set --tensor");
  }

  absl::Status Add(const LayerSource& source) {
    DumpLayer layer;
    if (source.offset_bytes < 0 || source.offset_bytes > kMostBytes) {
      return InvalidAt(source.file, "offset of ", source.offset_bytes, " bytes; must be in [0, ",
                       kMostBytes, "]");
    }
    layer.layer = source.layer;
    layer.index = source.index.value_or(0);
    layer.layout = source.layout;
    if (options_.hadamard.has_value()) layer.layout.hadamard = *options_.hadamard;
    PHASOR_ASSIGN_OR_RETURN(layer.file, Open(source.file));
    PHASOR_ASSIGN_OR_RETURN(const std::optional<FoundTensor> tensor, Find(source, layer.file));
    layer.offset_bytes = source.offset_bytes;
    const int64_t width = model_.head_dim ? model_.head_dim(source.layer) : 0;
    const int64_t given = layer.layout.head_dim;
    if (given == 0) layer.layout.head_dim = width;
    if (tensor.has_value()) {
      layer.offset_bytes += tensor->begin;
      PHASOR_RETURN_IF_ERROR(SizesFromShape(tensor->desc.shape, source.file, &layer.layout));
      // A description may say that the bits are of another code.
      PHASOR_ASSIGN_OR_RETURN(layer.layout.code, source.code.has_value()
                                                     ? absl::StatusOr<KeyCode>(*source.code)
                                                     : CodeOf(*tensor, source.file));
      FindValues(source, *tensor, &layer);
    } else {
      layer.layout.code = source.code.value_or(KeyCode::kBFloat16);
    }
    if (layer.layout.page_size == 0) layer.layout.page_size = 1;
    PHASOR_RETURN_IF_ERROR(CheckSizes(source, layer.layout));
    dump_.layers.push_back(std::move(layer));
    return absl::OkStatus();
  }

  static absl::Status CheckSizes(const LayerSource& source, const KeyLayout& layout) {
    const std::pair<const char*, int64_t> sizes[] = {{"--pages", layout.pages},
                                                     {"--page-size", layout.page_size},
                                                     {"--heads", layout.heads},
                                                     {"--head-dim", layout.head_dim}};
    for (const auto& [flag, size] : sizes) {
      if (size == 0) return InvalidAt(source.file, "does not say ", flag, "; must be given");
      if (size < 1 || size > kMostOfASize) {
        return InvalidAt(source.file, flag, " of ", size, "; must be in [1, ", kMostOfASize, "]");
      }
    }
    return absl::OkStatus();
  }

  // Looks for a tensor with the values, beside the keys or in a file of its own.
  void FindValues(const LayerSource& source, const FoundTensor& keys, DumpLayer* layer) {
    LayerSource values = source;
    const bool named = source.file.ends_with(".safetensors");
    std::string& name = named ? values.tensor : values.file;
    if (!named) {
      const std::filesystem::path path(source.file);
      const std::string file = ValuesName(path.filename().string());
      name = file.empty() ? "" : (path.parent_path() / file).string();
    } else {
      name = ValuesName(name);
    }
    std::error_code error;
    if (name.empty() || (!named && !std::filesystem::exists(name, error))) return;
    const auto file = Open(values.file);
    if (!file.ok()) return;
    const auto found = Find(values, *file);
    if (!found.ok() || !found->has_value()) return;
    if ((*found)->desc.dtype != keys.desc.dtype || (*found)->desc.shape != keys.desc.shape) return;
    layer->values_file = *file;
    layer->values_offset_bytes = (*found)->begin + source.offset_bytes;
  }

  absl::Status AddLlamaState(const MappedFile& file) {
    const std::string& path = options_.common.file;
    PHASOR_ASSIGN_OR_RETURN(const LlamaState state,
                            ParseLlamaState(file.bytes(), options_.sequence, path));
    if (state.rest_bytes > 0) {
      dump_.notes.push_back(StrCat(path, ": the last ", state.rest_bytes,
                                   " bytes are no keys that Phasor knows, and were not read"));
    }
    PHASOR_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, Numbers(state));
    size_t next = 0;
    for (const LlamaPart& part : state.parts) {
      const auto cells =
          std::make_shared<const CellPositions>(CellPositions{part.slots, part.positions});
      for (const LlamaKeys& keys : part.layers) {
        DumpLayer layer{.layer = numbers[next++], .file = file, .offset_bytes = keys.offset_bytes};
        layer.cells = cells;
        PHASOR_RETURN_IF_ERROR(FitLlamaLayer(keys, part, &layer));
        dump_.layers.push_back(std::move(layer));
      }
    }
    return absl::OkStatus();
  }

  // The numbers of the layers in their order in the file.
  absl::StatusOr<std::vector<int64_t>> Numbers(const LlamaState& state) const {
    int64_t count = 0;
    for (const LlamaPart& part : state.parts) count += static_cast<int64_t>(part.layers.size());
    std::vector<int64_t> numbers = options_.numbers;
    if (numbers.empty() && state.parts.size() == 2 &&
        state.parts[0].layers.size() == model_.full_layers.size() &&
        state.parts[1].layers.size() == model_.window_layers.size()) {
      numbers = model_.full_layers;
      numbers.insert(numbers.end(), model_.window_layers.begin(), model_.window_layers.end());
    }
    if (numbers.empty() && state.parts.size() == 1 && model_.count.value_or(count) == count) {
      numbers.resize(static_cast<size_t>(count));
      std::iota(numbers.begin(), numbers.end(), int64_t{0});
    }
    if (static_cast<int64_t>(numbers.size()) == count) return numbers;
    return InvalidAt(options_.common.file, "holds keys of ", count, " layers in ",
                     state.parts.size(), " parts and the model has ", model_.count.value_or(count),
                     " layers; must be given their numbers in this order (--layer-numbers)");
  }

  absl::Status FitLlamaLayer(const LlamaKeys& keys, const LlamaPart& part, DumpLayer* layer) const {
    KeyLayout& layout = layer->layout;
    layout = options_.common.layout;
    layout.name = "llamacpp";
    layout.code = keys.code;
    layout.pages = 1;
    layout.page_size = part.cells;
    if (layout.head_dim == 0 && model_.head_dim) layout.head_dim = model_.head_dim(layer->layer);
    if (layout.head_dim == 0) layout.head_dim = keys.lanes / std::max<int64_t>(layout.heads, 1);
    if (layout.head_dim < 1) {
      return InvalidAt(options_.common.file, "rows of ", keys.lanes, " lanes for --heads of ",
                       layout.heads, "; must have lanes for each head");
    }
    const int64_t unit = UnitLanes(keys.code);
    const int64_t row_bytes = keys.lanes / unit * UnitBytes(keys.code);
    const int64_t content = model_.content_lanes;
    if (content > 0 && content % unit == 0 && keys.lanes - layout.head_dim == content) {
      layout.heads = 1;
      layout.lanes_offset = content / unit * UnitBytes(keys.code);
      layout.row_bytes = row_bytes;
      layout.slot_bytes = row_bytes;
    } else if (!layout.lanes_offset.has_value()) {
      const int64_t heads = keys.lanes / layout.head_dim;
      if (heads * layout.head_dim != keys.lanes || (layout.heads != 0 && layout.heads != heads)) {
        return InvalidAt(options_.common.file, "rows of ", keys.lanes, " lanes are not ",
                         layout.heads == 0 ? "whole" : StrCat(layout.heads), " heads of ",
                         layout.head_dim, "; must be, or give --lanes-offset and --heads");
      }
      layout.heads = heads;
    } else {
      layout.row_bytes = row_bytes;
      layout.slot_bytes = row_bytes;
    }
    // Since April 2026. Older files do not say it.
    const bool transformed = IsBlockCode(keys.code) && layout.head_dim % 64 == 0;
    const int64_t usual = transformed ? layout.head_dim & -layout.head_dim : 0;
    layout.hadamard = options_.hadamard.value_or(part.hadamard.value_or(usual));
    return absl::OkStatus();
  }

  const DumpOptions& options_;
  const ModelLayers& model_;
  std::map<std::string, MappedFile> files_;
  std::map<std::string, TensorMap> tensors_;
  Dump dump_;
};

}  // namespace

absl::StatusOr<Dump> OpenDump(const DumpOptions& options, const ModelLayers& model) {
  return Opener(options, model).Run();
}

}  // namespace phasor::cli
