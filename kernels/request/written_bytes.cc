// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/written_bytes.h"

#include <algorithm>
#include <vector>

namespace phasor {
namespace {

using Ranges = absl::FunctionRef<void(int64_t, int64_t)>;

// Joins ranges that follow one another. Threads: one.
class Joined {
 public:
  explicit Joined(Ranges range) : range_(range) {}
  ~Joined() { Flush(); }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

  void Add(int64_t begin, int64_t bytes) {
    if (begin != begin_ + bytes_) {
      Flush();
      begin_ = begin;
      bytes_ = 0;
    }
    bytes_ += bytes;
  }

 private:
  void Flush() {
    if (bytes_ > 0) range_(begin_, bytes_);
  }

  const Ranges range_;
  int64_t begin_ = 0;
  int64_t bytes_ = 0;
};

bool Writes(const PreparedMove& move, const MovePlane& plane, size_t pool) {
  const bool stays = plane.plan == nullptr && move.mode == MoveMode::kMove;
  return plane.to_pool == pool && !stays && move.mode != MoveMode::kCompare;
}

void AddRows(const KeyForm& form, const std::vector<int64_t>& slots, int64_t offset, Ranges range) {
  Joined rows(range);
  for (const int64_t slot : slots) {
    for (int64_t h = 0; h < form.heads; ++h) {
      rows.Add(offset + form.RowOf(slot) + h * form.head_bytes - form.bytes_before,
               form.bytes_before + form.bytes_from);
    }
  }
}

void AddScales(const KeyForm& form, const std::vector<int64_t>& slots, int64_t offset,
               Ranges range) {
  if (!form.scaled_rows) return;
  Joined scales(range);
  for (const int64_t slot : slots) {
    for (int64_t h = 0; h < form.heads; ++h) {
      scales.Add(offset + form.ScaleOf(slot, h), sizeof(float));
    }
  }
}

}  // namespace

bool WritesWholeRows(const PreparedMove& move, size_t pool) {
  return std::all_of(move.planes.begin(), move.planes.end(), [&](const MovePlane& plane) {
    return !Writes(move, plane, pool) || move.forms[plane.to_form].dense();
  });
}

void ForEachWritten(const PreparedMove& move, size_t pool, Ranges range) {
  for (const MovePlane& plane : move.planes) {
    if (!Writes(move, plane, pool)) continue;
    const std::vector<int64_t>& slots = move.groups[plane.tokens].to_slots;
    AddRows(move.forms[plane.to_form], slots, plane.to_offset, range);
    AddScales(move.forms[plane.to_form], slots, plane.to_offset, range);
  }
  if (move.mode == MoveMode::kCompare) return;
  for (const MoveTokens& tokens : move.groups) {
    if (!tokens.slot_positions.has_value() || tokens.slot_positions->pool != pool) continue;
    Joined positions(range);
    for (const int64_t slot : tokens.to_slots) {
      positions.Add(tokens.slot_positions->offset + 4 * slot, 4);
    }
  }
}

}  // namespace phasor
