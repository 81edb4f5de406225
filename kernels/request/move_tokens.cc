// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/move_tokens.h"

#include <algorithm>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/math/phase.h"

namespace phasor {
namespace {

// The slots of `count` places of a block table from place `first` on.
absl::Status AddSlots(const std::vector<int64_t>& table, int64_t first, int64_t count,
                      int64_t page_size, int64_t slots, std::string_view path,
                      std::string_view table_field, std::string_view first_field,
                      std::vector<int64_t>* out) {
  const auto pages = static_cast<int64_t>(table.size());
  if (first < 0 ||
      count > (pages > INT64_MAX / page_size ? INT64_MAX : pages * page_size) - first) {
    return Invalid(path, ".", first_field, ": places [", first, ", ", first, " + ", count,
                   "); must lie in the ", pages, " pages of ", table_field, ", of ", page_size,
                   " slots each");
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = first + i;
    const int64_t page = table[static_cast<size_t>(place / page_size)];
    if (page < 0 || page >= slots / page_size) {
      return Invalid(path, ".", table_field, "[", place / page_size, "]: page ", page,
                     "; must be in [0, ", slots / page_size, ")");
    }
    out->push_back(page * page_size + place % page_size);
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT: positions from `first` on leave 64 bits.
absl::Status AddPositions(int64_t first, int64_t count, std::string_view path,
                          std::vector<int64_t>* out) {
  if (count > 0 && first > INT64_MAX - (count - 1)) {
    return Invalid(path, ": ", first, " with ", count, " tokens; must end below 2^63");
  }
  for (int64_t i = 0; i < count; ++i) out->push_back(first + i);
  return absl::OkStatus();
}

absl::Status AddRun(const KeyRun& run, const KeyPages& pages, MoveMode mode, std::string_view path,
                    MoveTokens* out) {
  PHASOR_RETURN_IF_ERROR(AddSlots(run.block_table, run.first, run.count, pages.page_size,
                                  pages.slots, path, "block_table", "first", &out->from_slots));
  const bool other_place = !run.to_block_table.empty() || run.to_first.has_value();
  if (mode == MoveMode::kMove && other_place) {
    return Invalid(path, ".to_block_table: set for MOVE; must be unset, or the mode COPY_ON_WRITE");
  }
  const bool own_table = !run.to_block_table.empty();
  PHASOR_RETURN_IF_ERROR(AddSlots(
      own_table ? run.to_block_table : run.block_table, run.to_first.value_or(run.first), run.count,
      pages.to_page_size, pages.to_slots, path, own_table ? "to_block_table" : "block_table",
      run.to_first.has_value() ? "to_first" : "first", &out->to_slots));
  PHASOR_RETURN_IF_ERROR(
      AddPositions(run.from, run.count, StrCat(path, ".from"), &out->from_positions));
  return AddPositions(run.to, run.count, StrCat(path, ".to"), &out->to_positions);
}

absl::Status CheckSlots(const std::vector<int64_t>& values, int64_t slots, std::string_view path) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] < slots) continue;
    return Invalid(path, "[", i, "]: slot ", values[i], "; must be in [0, ", slots, ")");
  }
  return absl::OkStatus();
}

absl::Status AddSlotTokens(const KeySlots& slots, const KeyPages& pages, MoveMode mode,
                           bool has_runs, std::string_view path, MoveTokens* out) {
  const size_t tokens = slots.slots.size();
  if (mode == MoveMode::kMove && !slots.to_slots.empty()) {
    return Invalid(path, ".to_slots: set for MOVE; must be unset, or the mode COPY_ON_WRITE");
  }
  if (!slots.to_slots.empty() && slots.to_slots.size() != tokens) {
    return Invalid(path, ".to_slots: ", slots.to_slots.size(), " slots; must be one per slot (",
                   tokens, ")");
  }
  if (tokens == 0) {
    if (slots.from_positions.empty() && slots.positions.empty()) return absl::OkStatus();
    return Invalid(path, ".positions: set without slots; must be unset");
  }
  const size_t axes = slots.positions.size() / tokens;
  if (axes < 1 || axes > kMaxAxes || slots.positions.size() != axes * tokens) {
    return Invalid(path, ".positions: ", slots.positions.size(),
                   " numbers; must be [tokens] or [tokens, axes] for ", tokens, " slots");
  }
  if (slots.from_positions.size() != slots.positions.size()) {
    return Invalid(path, ".from_positions: ", slots.from_positions.size(),
                   " numbers; must be as many as positions (", slots.positions.size(), ")");
  }
  if (axes > 1 && has_runs) {
    return Invalid(path, ".positions: ", axes,
                   " axes in a group with runs; must be one axis, or a group of its own");
  }
  PHASOR_RETURN_IF_ERROR(CheckSlots(slots.slots, pages.slots, StrCat(path, ".slots")));
  const auto& to = slots.to_slots.empty() ? slots.slots : slots.to_slots;
  PHASOR_RETURN_IF_ERROR(CheckSlots(to, pages.to_slots, StrCat(path, ".to_slots")));
  out->axes = static_cast<int>(axes);
  const auto append = [](const std::vector<int64_t>& from, std::vector<int64_t>* list) {
    list->insert(list->end(), from.begin(), from.end());
  };
  append(slots.slots, &out->from_slots);
  append(to, &out->to_slots);
  append(slots.from_positions, &out->from_positions);
  append(slots.positions, &out->to_positions);
  return absl::OkStatus();
}

// INVALID_ARGUMENT: two tokens have one destination.
absl::Status CheckDestinations(std::vector<int64_t> slots, std::string_view path) {
  std::sort(slots.begin(), slots.end());
  const auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice == slots.end()) return absl::OkStatus();
  return Invalid(path, ": two tokens go to slot ", *twice, "; must be one");
}

}  // namespace

absl::StatusOr<int64_t> CountTokens(const KeyGroup& group, std::string_view path) {
  auto tokens = static_cast<int64_t>(group.slots.slots.size());
  for (size_t i = 0; i < group.runs.size(); ++i) {
    const int64_t count = group.runs[i].count;
    if (count < 0 || count > kMaxMoveTokens) {
      return Invalid(path, ".runs[", i, "].count: ", count, "; must be in [0, ", kMaxMoveTokens,
                     "]");
    }
    tokens += count;
  }
  if (tokens > kMaxMoveTokens) {
    return Invalid(path, ": ", tokens, " tokens; must be at most ", kMaxMoveTokens,
                   "; make several calls");
  }
  return tokens;
}

absl::StatusOr<MoveTokens> ExpandTokens(const KeyGroup& group, const KeyPages& pages, MoveMode mode,
                                        std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(group, path));
  MoveTokens out;
  for (std::vector<int64_t>* list :
       {&out.from_slots, &out.to_slots, &out.from_positions, &out.to_positions}) {
    list->reserve(static_cast<size_t>(tokens));
  }
  for (size_t i = 0; i < group.runs.size(); ++i) {
    PHASOR_RETURN_IF_ERROR(
        AddRun(group.runs[i], pages, mode, StrCat(path, ".runs[", i, "]"), &out));
  }
  PHASOR_RETURN_IF_ERROR(
      AddSlotTokens(group.slots, pages, mode, !group.runs.empty(), StrCat(path, ".slots"), &out));
  if (mode != MoveMode::kCompare) PHASOR_RETURN_IF_ERROR(CheckDestinations(out.to_slots, path));
  return out;
}

}  // namespace phasor
