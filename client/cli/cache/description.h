// SPDX-License-Identifier: Apache-2.0
// Says where the keys of a cache lie in files, without a program that reads them: a small JSON
// file, or flags. docs/check-cache.md lists the fields. Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_CACHE_DESCRIPTION_H_
#define PHASOR_CLIENT_CLI_CACHE_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/request/move_keys.h"

namespace phasor::cli {

inline constexpr int64_t kMostLayers = 512;  // of a dump

// The keys of one layer in a file. "{layer}" in `file` and `tensor` stands for the layer's number.
struct LayerSource {
  int64_t layer = 0;  // of the model
  std::string file = {};
  std::string tensor = {};            // of a .safetensors file
  std::optional<int64_t> index = {};  // in the tensor; not set: see ForLayer
  int64_t offset_bytes = 0;           // of the tensor in a file of bytes
  // What is 0 or not set follows from the tensor's type and shape, or from the model.
  KeyLayout layout = {};
  std::optional<KeyCode> code = {};
};

// What a description says.
struct CacheDescription {
  LayerSource common;               // of all layers
  std::optional<int64_t> count;     // layers 0 to count - 1
  std::vector<LayerSource> layers;  // or these, if it lists them
};

// Reads the JSON of a description. `folder` is that of the file: it begins all relative names.
// INVALID_ARGUMENT: not JSON, an unknown field, or a value of another type.
absl::StatusOr<CacheDescription> ParseDescription(std::string_view text, const std::string& folder,
                                                  std::string_view path);

// `common` for one layer, with its number put into the names. A tensor whose name has no number
// holds all layers: then `place` says which one it is.
LayerSource ForLayer(const LayerSource& common, int64_t layer, int64_t place);

// The name that the values have where the keys have `name`: with "value" for "key" and the like.
// Empty: no such name.
std::string ValuesName(std::string_view name);

// Fills in the sizes of `layout` that are 0 from the shape of a tensor, by the order of its name.
// INVALID_ARGUMENT: the shape has another number of dimensions, or contradicts a size.
absl::Status SizesFromShape(absl::Span<const int64_t> shape, std::string_view path,
                            KeyLayout* layout);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CACHE_DESCRIPTION_H_
