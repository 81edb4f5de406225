// SPDX-License-Identifier: Apache-2.0
// Compares the keys of a prompt at two offsets, layer by layer, with COMPARE of MoveKeys.
#ifndef PHASOR_CLIENT_CLI_CACHE_CHECK_H_
#define PHASOR_CLIENT_CLI_CACHE_CHECK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/cache/dump.h"
#include "client/client.h"

namespace phasor::cli {

// The tokens that are compared: token i lies in slots[i] at position from[i] of the first cache,
// and in to_slots[i] at to[i] of the second.
struct TokenPairs {
  std::vector<int64_t> slots, to_slots, from, to;
};

// Which tokens of two dumps are compared.
struct TokenOptions {
  std::vector<int64_t> block_table, to_block_table;  // empty: all pages in order
  int64_t first = 0;
  std::optional<int64_t> to_first;  // not set: first
  std::optional<int64_t> from, to;  // positions; not set: 0, or the least of the cells
  std::optional<int64_t> count;     // not set: all
};

// INVALID_ARGUMENT: a place outside the pages, no tokens, or no distance between the positions.
absl::StatusOr<TokenPairs> PairTokens(const DumpLayer& from, const DumpLayer& to,
                                      const TokenOptions& options);

// A layer of both caches, and how its keys are taken to be stored.
struct LayerCase {
  int64_t layer = 0;
  std::optional<Spec> spec;  // not set: the keys do not rotate
  DumpLayer from, to;
  std::shared_ptr<const TokenPairs> tokens;
  double tolerance = 0;
  // What neighbours of the given specification change beside it.
  double amplitude = 1;   // the second cache has its keys times this
  int64_t distance = 0;   // added to that between the positions
  bool reversed = false;  // moves from `to` to `from`
  int64_t row_shift = 0;  // token i is token i + row_shift of the second cache
};

// The relative RMS difference that a row may have: roundings of the code, and an engine's angles in
// f32 at these positions.
double GateTolerance(KeyCode code, const TokenPairs& tokens);

// What a comparison of a layer found.
struct LayerOutcome {
  KeyDifference difference;
  int64_t rows = 0;
  bool all_zero = false;  // nothing could be compared
  bool fits() const { return difference.bad_rows == 0 && !all_zero; }
};

// Compares at most `most_tokens` tokens, from the first on. Errors as MoveKeys.
absl::StatusOr<LayerOutcome> CompareLayer(const Client& client, const LayerCase& layer,
                                          int64_t most_tokens);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CACHE_CHECK_H_
