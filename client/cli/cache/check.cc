// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/key_layouts.h"

namespace phasor::cli {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 20;  // of a call of MoveKeys
constexpr int64_t kMostPositions = int64_t{1} << 48;

// The slot of the token at `place` of a sequence; -1: beyond its pages.
int64_t SlotAt(const std::vector<int64_t>& table, const KeyLayout& layout, int64_t place) {
  const int64_t page = place / layout.page_size;
  const int64_t pages = table.empty() ? layout.pages : static_cast<int64_t>(table.size());
  if (place < 0 || page >= pages) return -1;
  const int64_t number = table.empty() ? page : table[static_cast<size_t>(page)];
  return number < 0 || number >= layout.pages
             ? -1
             : number * layout.page_size + place % layout.page_size;
}

// Tokens by their places in two sequences of pages.
absl::StatusOr<TokenPairs> PairPlaces(const DumpLayer& from, const DumpLayer& to,
                                      const TokenOptions& options) {
  const std::vector<int64_t>& table = options.block_table;
  const std::vector<int64_t>& to_table =
      options.to_block_table.empty() ? table : options.to_block_table;
  const int64_t to_first = options.to_first.value_or(options.first);
  const int64_t most = options.count.value_or(kMostTokens);
  TokenPairs pairs;
  for (int64_t i = 0; i < std::min(most, kMostTokens); ++i) {
    const int64_t slot = SlotAt(table, from.layout, options.first + i);
    const int64_t to_slot = SlotAt(to_table, to.layout, to_first + i);
    if (slot < 0 || to_slot < 0) break;
    pairs.slots.push_back(slot);
    pairs.to_slots.push_back(to_slot);
    pairs.from.push_back(options.from.value_or(0) + i);
    pairs.to.push_back(options.to.value_or(0) + i);
  }
  const auto count = static_cast<int64_t>(pairs.slots.size());
  if (options.count.has_value() && count < most) {
    return Invalid("--count: ", most, " tokens, but layer ", from.layer, " has pages for ", count,
                   " from --first and --to-first on; must be at most that");
  }
  return pairs;
}

// Tokens by the positions that both caches say.
TokenPairs PairCells(const CellPositions& from, const CellPositions& to, int64_t first,
                     int64_t to_first, std::optional<int64_t> count) {
  TokenPairs pairs;
  size_t k = 0;
  for (size_t i = 0; i < from.slots.size(); ++i) {
    const int64_t place = from.positions[i] - first;
    if (place < 0 || (count.has_value() && place >= *count)) continue;
    while (k < to.slots.size() && to.positions[k] < to_first + place) ++k;
    if (k == to.slots.size()) break;
    if (to.positions[k] != to_first + place) continue;
    if (static_cast<int64_t>(pairs.slots.size()) == kMostTokens) break;
    pairs.slots.push_back(from.slots[i]);
    pairs.to_slots.push_back(to.slots[k]);
    pairs.from.push_back(from.positions[i]);
    pairs.to.push_back(to.positions[k]);
  }
  return pairs;
}

// The cells of llama.cpp lie in any order, so their tokens are chosen by position.
absl::Status CheckCells(const DumpLayer& from, const DumpLayer& to, const TokenOptions& options) {
  if ((from.cells == nullptr) != (to.cells == nullptr)) {
    return Invalid("--to-input: only one of the caches is a state of llama.cpp; must be both");
  }
  const bool places = options.first != 0 || options.to_first.has_value() ||
                      !options.block_table.empty() || !options.to_block_table.empty();
  if (from.cells == nullptr || !places) return absl::OkStatus();
  return Invalid(
      "--first: a place or pages are given for a state of llama.cpp; must be positions (--from, "
      "--to, --count)");
}

// Where the layer begins in its file, if every layer of a tensor has the same distance to the next.
absl::StatusOr<int64_t> BeginOf(const DumpLayer& side) {
  const std::string path = StrCat("layer ", side.layer);
  const auto bytes = static_cast<int64_t>(side.file.bytes().size());
  if (side.offset_bytes < 0 || side.offset_bytes >= bytes) {
    return Invalid(path, ".offset_bytes: ", side.offset_bytes, "; must be in [0, ", bytes,
                   "), the bytes of its file");
  }
  if (side.index < 0 || side.index >= side.layout.layers) {
    return Invalid(path, ".index: ", side.index, "; must be in [0, ", side.layout.layers,
                   "), the layers of its tensor");
  }
  PHASOR_ASSIGN_OR_RETURN(const ResolvedKeyLayout layout, ResolveKeyLayout(side.layout, path));
  if (side.index > 0 && layout.layer_bytes > (bytes - side.offset_bytes) / side.index) {
    return Invalid(path, ": begins beyond its file of ", bytes, " bytes; must lie in it");
  }
  return side.offset_bytes + side.index * layout.layer_bytes;
}

}  // namespace

absl::StatusOr<TokenPairs> PairTokens(const DumpLayer& from, const DumpLayer& to,
                                      const TokenOptions& options) {
  for (const auto& [flag, value] :
       {std::pair("--from", options.from.value_or(0)), std::pair("--to", options.to.value_or(0)),
        std::pair("--first", options.first),
        std::pair("--to-first", options.to_first.value_or(0))}) {
    if (std::abs(value) <= kMostPositions) continue;
    return Invalid(flag, ": ", value, "; must be in [-2^48, 2^48]");
  }
  TokenPairs pairs;
  PHASOR_RETURN_IF_ERROR(CheckCells(from, to, options));
  if (from.cells != nullptr) {
    pairs = PairCells(*from.cells, *to.cells, options.from.value_or(from.cells->positions.front()),
                      options.to.value_or(to.cells->positions.front()), options.count);
  } else {
    PHASOR_ASSIGN_OR_RETURN(pairs, PairPlaces(from, to, options));
  }
  if (pairs.slots.empty()) {
    return Invalid("--count: no token of layer ", from.layer,
                   " is in both caches; must be at least 1, within --from, --to and the pages");
  }
  if (pairs.from == pairs.to) {
    return Invalid("--to: ", pairs.to.front(),
                   ", as --from; must differ, or every specification would fit");
  }
  return pairs;
}

double GateTolerance(KeyCode code, const TokenPairs& tokens) {
  int64_t farthest = 0;
  for (const std::vector<int64_t>* positions : {&tokens.from, &tokens.to}) {
    for (const int64_t position : *positions) farthest = std::max(farthest, std::abs(position));
  }
  return std::max(DefaultTolerance(code), 1e-3) + 1e-7 * static_cast<double>(farthest);
}

absl::StatusOr<LayerOutcome> CompareLayer(const Client& client, const LayerCase& layer,
                                          int64_t most_tokens) {
  PHASOR_ASSIGN_OR_RETURN(const int64_t from_begin, BeginOf(layer.from));
  PHASOR_ASSIGN_OR_RETURN(const int64_t to_begin, BeginOf(layer.to));
  const auto pool = [](const DumpLayer& side) {
    const absl::Span<const std::byte> bytes = side.file.bytes();
    // COMPARE writes nothing.
    return absl::Span<std::byte>(const_cast<std::byte*>(bytes.data()), bytes.size());
  };
  const bool one_file = pool(layer.from).data() == pool(layer.to).data();
  MoveCall call{.mode = MoveMode::kCompare, .tolerance = layer.tolerance};
  call.pools = {pool(layer.from)};
  if (!one_file) call.pools.push_back(pool(layer.to));
  call.layouts = {layer.from.layout, layer.to.layout};
  KeyLayer& keys = call.layers.emplace_back();
  keys.place = {0, from_begin};
  keys.to_place = KeyPlace{one_file ? 0 : 1, to_begin};
  keys.to_layout = 1;
  if (layer.spec.has_value()) {
    KeySpec& spec = call.specs.emplace_back();
    spec.spec = *layer.spec;
    if (layer.amplitude != 1) {
      spec.from_spec = *layer.spec;
      spec.spec.attention_factor = layer.spec->attention_factor.value_or(1) * layer.amplitude;
    }
    keys.spec = 0;
  }
  const TokenPairs& tokens = *layer.tokens;
  const auto count = static_cast<int64_t>(tokens.slots.size());
  KeySlots& slots = call.groups.emplace_back().slots;
  for (int64_t i = 0; i < std::min(count, most_tokens); ++i) {
    const int64_t other = i + layer.row_shift;
    if (other < 0 || other >= count) continue;
    const int64_t from = tokens.from[static_cast<size_t>(i)];
    const int64_t to = tokens.to[static_cast<size_t>(i)] + layer.distance;
    slots.slots.push_back(tokens.slots[static_cast<size_t>(i)]);
    slots.to_slots.push_back(tokens.to_slots[static_cast<size_t>(other)]);
    slots.from_positions.push_back(layer.reversed ? to : from);
    slots.positions.push_back(layer.reversed ? from : to);
  }
  if (slots.slots.empty()) return Invalid("--count: too few tokens; must be more");
  LayerOutcome outcome;
  outcome.rows = static_cast<int64_t>(slots.slots.size()) * layer.from.layout.heads;
  PHASOR_ASSIGN_OR_RETURN(const MoveResult result, client.MoveKeys(call));
  outcome.difference = result.differences.front();
  outcome.all_zero = outcome.difference.reference_rms == 0;
  return outcome;
}

}  // namespace phasor::cli
