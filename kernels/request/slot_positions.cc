// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/slot_positions.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

constexpr int64_t kBytes = sizeof(uint32_t);

// The most slots whose positions are copied at once.
constexpr int64_t kSlotsOfRead = int64_t{1} << 16;

int64_t PositionAt(const std::byte* p) {
  uint32_t position = 0;
  for (int64_t i = 0; i < kBytes; ++i) position |= std::to_integer<uint32_t>(p[i]) << (8 * i);
  return position;
}

// The position that each slot has now. Copies stretches of slots, in ascending order: few copies
// where the memory is far away, and little memory where the slots are.
absl::Status ReadEach(const std::vector<int64_t>& slots, const std::byte* first, ReadMemory read,
                      std::vector<int64_t>* found) {
  std::vector<size_t> order(slots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!std::is_sorted(slots.begin(), slots.end())) {
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return slots[a] < slots[b]; });
  }
  found->resize(slots.size());
  std::vector<std::byte> copied;
  for (size_t i = 0; i < order.size();) {
    const int64_t begin = slots[order[i]];
    size_t end = i + 1;
    while (end < order.size() && slots[order[end]] - begin < kSlotsOfRead) ++end;
    copied.resize(static_cast<size_t>((slots[order[end - 1]] - begin + 1) * kBytes));
    PHASOR_RETURN_IF_ERROR(read(first + begin * kBytes, std::ssize(copied), copied.data()));
    for (; i < end; ++i) {
      (*found)[order[i]] = PositionAt(copied.data() + (slots[order[i]] - begin) * kBytes);
    }
  }
  return absl::OkStatus();
}

// Whether a layer of the group has keys of another spec than they shall have.
bool ChangesSpec(const PreparedMove& move, size_t group) {
  return std::any_of(move.planes.begin(), move.planes.end(), [&](const MovePlane& plane) {
    return plane.tokens == group && plane.plan != nullptr &&
           plane.plan->fingerprint != plane.from_plan->fingerprint;
  });
}

// Keeps the entries of `list`, `each` for each token, whose token is not done.
void KeepUndone(const std::vector<bool>& done, std::vector<int64_t>* list) {
  size_t kept = 0;
  for (size_t t = 0; t < done.size(); ++t) {
    if (!done[t]) (*list)[kept++] = (*list)[t];
  }
  list->resize(kept);
}

// Reads the positions of one group. `done`: the tokens that a MOVE leaves out.
absl::Status ReadGroup(const MoveTokens& tokens, MoveMode mode, const std::byte* first,
                       std::string_view path, ReadMemory read, std::vector<bool>* done) {
  std::vector<int64_t> positions;
  PHASOR_RETURN_IF_ERROR(ReadEach(tokens.to_slots, first, read, &positions));
  for (size_t t = 0; t < tokens.to_slots.size(); ++t) {
    const int64_t slot = tokens.to_slots[t];
    const int64_t from = tokens.from_positions[t], to = tokens.to_positions[t];
    const int64_t found = positions[t];
    (*done)[t] = found == to;
    if ((*done)[t] || (mode == MoveMode::kMove && found == from)) continue;
    const std::string wanted = mode == MoveMode::kMove
                                   ? StrCat(from, " before the move, or ", to, " after it")
                                   : StrCat(to);
    return absl::FailedPreconditionError(StrCat(path, ".slot_positions: slot ", slot,
                                                " has position ", found, "; must be ", wanted));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t SlotPositionBytes(const PreparedMove& move, size_t group) {
  int64_t slots = std::numeric_limits<int64_t>::max();
  for (const MovePlane& plane : move.planes) {
    if (plane.tokens == group) slots = std::min(slots, move.forms[plane.to_form].slots());
  }
  return slots > std::numeric_limits<int64_t>::max() / kBytes ? slots : slots * kBytes;
}

absl::Status CheckSlotPositions(const PreparedMove& move, size_t group, std::string_view path) {
  const MoveTokens& tokens = move.groups[group];
  const int64_t bytes = SlotPositionBytes(move, group);
  const int64_t room =
      move.pools[tokens.slot_positions->pool].bytes - tokens.slot_positions->offset;
  if (bytes > room) {
    return Invalid(path, ".slot_positions: ", bytes, " bytes, 4 for each slot; must be at most ",
                   room, ", the rest of its pool");
  }
  if (tokens.axes > 1) {
    return Invalid(path, ".slot_positions: set for positions of ", tokens.axes,
                   " axes; must be unset, or one axis");
  }
  const bool changes = move.mode == MoveMode::kMove && ChangesSpec(move, group);
  for (size_t t = 0; t < tokens.to_positions.size(); ++t) {
    for (const int64_t position : {tokens.from_positions[t], tokens.to_positions[t]}) {
      if (position >= 0 && position <= std::numeric_limits<uint32_t>::max()) continue;
      return Invalid(path, ".slot_positions: token ", t, " has position ", position,
                     "; must be in [0, 2^32)");
    }
    if (!changes || tokens.from_positions[t] != tokens.to_positions[t]) continue;
    return Invalid(path, ".slot_positions: token ", t,
                   " keeps its position under another spec, so whether it is done cannot be seen; "
                   "must be unset, or the mode COPY_ON_WRITE");
  }
  return absl::OkStatus();
}

absl::Status ReadHostMemory(const std::byte* from, int64_t bytes, std::byte* out) {
  std::memcpy(out, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status ReadSlotPositions(absl::Span<const std::byte* const> pools, std::string_view path,
                               PreparedMove* move, ReadMemory read) {
  if (move->mode == MoveMode::kCopyOnWrite) return absl::OkStatus();
  for (size_t g = 0; g < move->groups.size(); ++g) {
    MoveTokens& tokens = move->groups[g];
    if (!tokens.slot_positions.has_value()) continue;
    std::vector<bool> done(tokens.to_slots.size());
    PHASOR_RETURN_IF_ERROR(ReadGroup(
        tokens, move->mode, pools[tokens.slot_positions->pool] + tokens.slot_positions->offset,
        StrCat(path, ".groups[", g, "]"), read, &done));
    if (move->mode == MoveMode::kCompare) continue;
    const int64_t before = tokens.count();
    for (std::vector<int64_t>* list :
         {&tokens.from_slots, &tokens.to_slots, &tokens.from_positions, &tokens.to_positions}) {
      KeepUndone(done, list);
    }
    move->tokens -= before - tokens.count();
  }
  move->moved_bytes = MovedBytes(*move);
  return absl::OkStatus();
}

}  // namespace phasor
