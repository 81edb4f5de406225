// SPDX-License-Identifier: Apache-2.0
// Opens the dump of a cache in any of its forms: .npy, .safetensors, a file of bytes, a description
// of several of them, or a state of llama.cpp. Files are mapped, not read.
#ifndef PHASOR_CLIENT_CLI_CACHE_DUMP_H_
#define PHASOR_CLIENT_CLI_CACHE_DUMP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/cache/description.h"
#include "client/cli/cache/mapped_file.h"
#include "kernels/request/move_keys.h"

namespace phasor::cli {

// Which slots hold which positions, where the file says so; by position.
struct CellPositions {
  std::vector<int64_t> slots;
  std::vector<int64_t> positions;
};

// The keys of one layer.
struct DumpLayer {
  int64_t layer = 0;  // of the model
  MappedFile file;
  int64_t offset_bytes = 0;                    // of the tensor
  int64_t index = 0;                           // of the layer in the tensor
  KeyLayout layout;                            // with all sizes
  std::shared_ptr<const CellPositions> cells;  // nullptr: slots are counted from 0
  // A tensor of the same shape and type that holds the values, by its name.
  std::optional<MappedFile> values_file;
  int64_t values_offset_bytes = 0;
};

struct Dump {
  std::vector<DumpLayer> layers;   // by number
  std::vector<std::string> notes;  // what was left out, for the user
};

// What a model says about its layers. Every function may be empty.
struct ModelLayers {
  std::optional<int64_t> count;
  // The width of a head of layer i that rotates; 0: not known, any width will do.
  std::function<int64_t(int64_t)> head_dim;
  // Lanes of a row before the rotary ones (MLA); 0: none.
  int64_t content_lanes = 0;
  // Numbers of the layers without and with a sliding window, if the model has both.
  std::vector<int64_t> full_layers, window_layers;
};

// How to read one dump.
struct DumpOptions {
  LayerSource common;               // by flags; file is the path, or a pattern with {layer}
  std::optional<int64_t> count;     // of layers; not set: the model's, or all that are there
  std::vector<int64_t> numbers;     // of the layers in the file, in order; empty: from 0 on
  std::optional<int64_t> sequence;  // of a state of llama.cpp
  std::optional<int64_t> hadamard;  // not set: of llama.cpp's quantised keys
};

// INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED: a file cannot be read, or does not have what the
// description and the model say.
absl::StatusOr<Dump> OpenDump(const DumpOptions& options, const ModelLayers& model);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CACHE_DUMP_H_
