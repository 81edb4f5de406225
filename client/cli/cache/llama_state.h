// SPDX-License-Identifier: Apache-2.0
// Finds the keys in a state that llama.cpp saved: llama_state_save_file (versions 10 and 11),
// llama_state_seq_save_file (versions 3 and 4) and llama_state_seq_get_data. The older format is
// that of src/llama-kv-cache.cpp (state_write) and src/llama-context.cpp at 0c1e57098. The newer
// one, of v0.6.0, also says how quantised keys and values are transformed. Values are skipped.
// Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_CACHE_LLAMA_STATE_H_
#define PHASOR_CLIENT_CLI_CACHE_LLAMA_STATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ops/key_form.h"

namespace phasor::cli {

// The keys of one layer: a row for every cell of the part, side by side.
struct LlamaKeys {
  KeyCode code = KeyCode::kFloat16;
  int64_t lanes = 0;         // of a row: all heads
  int64_t offset_bytes = 0;  // of the first row in the file
};

// One cache. Models with a sliding window have two: of the layers without the window, then of those
// with it.
struct LlamaPart {
  int64_t cells = 0;               // rows of a layer
  std::vector<int64_t> slots;      // cells of the sequence, by position
  std::vector<int64_t> positions;  // of these
  std::vector<LlamaKeys> layers;
  // Lanes of the Hadamard blocks that keys are multiplied by; 0: none. Not set: an older file,
  // which does not say it.
  std::optional<int64_t> hadamard;
};

struct LlamaState {
  std::string architecture;  // empty: the file does not say it
  std::vector<LlamaPart> parts;
  int64_t rest_bytes = 0;  // after the last part: recurrent states and other things
};

// Whether a file begins as one that ParseLlamaState reads.
bool IsLlamaState(absl::Span<const std::byte> file);

// `sequence` must be set if the file holds several. INVALID_ARGUMENT "<path>: ...": another
// version, a truncated or malformed file, several sequences, or none with that number.
// UNIMPLEMENTED: a type of keys that Phasor does not read.
absl::StatusOr<LlamaState> ParseLlamaState(absl::Span<const std::byte> file,
                                           std::optional<int64_t> sequence, std::string_view path);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CACHE_LLAMA_STATE_H_
