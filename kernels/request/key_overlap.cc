// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/key_overlap.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/base/bounded.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/slot_positions.h"

namespace phasor {
namespace {

using Step = KeyBytes::Step;

KeyBytes WithSteps(int64_t begin, int64_t bytes, std::vector<Step> steps) {
  steps.erase(std::remove_if(steps.begin(), steps.end(), [](Step s) { return s.count <= 1; }),
              steps.end());
  std::stable_sort(steps.begin(), steps.end(),
                   [](Step a, Step b) { return a.distance > b.distance; });
  return {begin, bytes, std::move(steps)};
}

// The bytes from the first repetition of steps[first..] to the last; kUnbounded if they are more.
int64_t SpanFrom(const KeyBytes& bytes, size_t first) {
  int64_t span = bytes.bytes;
  for (size_t i = first; i < bytes.steps.size(); ++i) {
    const Step& step = bytes.steps[i];
    span = BoundedSum(span, BoundedProduct(step.distance, step.count - 1));
  }
  return span;
}

// AreDisjoint without the steps before `ia` and `ib`, where b begins `d` bytes after a.
bool AreDisjointFrom(const KeyBytes& a, size_t ia, const KeyBytes& b, size_t ib, int64_t d) {
  if (d >= SpanFrom(a, ia) || -d >= SpanFrom(b, ib)) return true;
  if (ia == a.steps.size() || ib == b.steps.size()) return false;
  const int64_t distance = a.steps[ia].distance;
  if (distance != b.steps[ib].distance) return false;
  const int64_t rest = (d % distance + distance) % distance;
  return AreDisjointFrom(a, ia + 1, b, ib + 1, rest) &&
         AreDisjointFrom(a, ia + 1, b, ib + 1, rest - distance);
}

// One use of a plane: as source or as destination.
struct Use {
  size_t pool = 0;
  size_t form = 0;
  size_t group = 0;
  bool destination = false;
  int64_t offset = 0;
  bool scales = false;
  KeyBytes bytes;
  std::string path;
};

// The slots or pages of a group's tokens, sorted.
class TokenSets {
 public:
  explicit TokenSets(const PreparedMove& move) : move_(move) {}

  // Whether two uses have a slot, or a page, in common. Page p of b is page p + shift of a.
  bool Meet(const Use& a, const Use& b, bool pages, int64_t shift) {
    const auto key = std::tuple(a.group, a.destination, b.group, b.destination, pages, shift);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    const std::vector<int64_t>& x = Sorted(a, pages);
    const std::vector<int64_t>& y = Sorted(b, pages);
    bool meet = false;
    for (size_t i = 0, j = 0; i < x.size() && j < y.size() && !meet;) {
      meet = x[i] == y[j] + shift;
      x[i] < y[j] + shift ? ++i : ++j;
    }
    return known_[key] = meet;
  }

 private:
  const std::vector<int64_t>& Sorted(const Use& use, bool pages) {
    std::vector<int64_t>& set = sets_[{use.group, use.destination, pages}];
    const MoveTokens& tokens = move_.groups[use.group];
    if (!set.empty()) return set;
    set = use.destination ? tokens.to_slots : tokens.from_slots;
    if (pages) {
      for (int64_t& slot : set) slot /= move_.forms[use.form].page_size;
    }
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    return set;
  }

  const PreparedMove& move_;
  std::map<std::tuple<size_t, bool, bool>, std::vector<int64_t>> sets_;
  std::map<std::tuple<size_t, bool, size_t, bool, bool, int64_t>, bool> known_;
};

std::string PathOf(const PreparedMove& move, size_t plane, std::string_view path) {
  if (plane < move.layers) return StrCat(path, ".layers[", plane, "]");
  return StrCat(path, ": the values of a layer");
}

// Scales in the rows are part of them.
bool ScalesInRows(const KeyForm& form) {
  const int64_t at = form.scales.offset;
  return at >= 0 && at + 4 <= form.bytes_from &&
         form.scales == KeyScales{at, form.page_bytes, form.slot_bytes, form.head_bytes};
}

// The uses of all planes: those of their rows, and of scales beside them.
std::vector<Use> UsesOf(const PreparedMove& move, std::string_view path) {
  std::vector<Use> uses;
  const auto add = [&](Use use) {
    const KeyForm& form = move.forms[use.form];
    use.bytes = RowsOf(form, use.offset);
    uses.push_back(use);
    if (!form.scaled_rows || ScalesInRows(form)) return;
    use.scales = true;
    use.bytes = ScalesOf(form, use.offset);
    uses.push_back(std::move(use));
  };
  for (size_t i = 0; i < move.planes.size(); ++i) {
    const MovePlane& p = move.planes[i];
    const std::string name = PathOf(move, i, path);
    const bool in_place = move.mode == MoveMode::kMove;
    add({p.pool, p.form, p.tokens, in_place, p.offset, false, {}, name});
    if (!in_place) add({p.to_pool, p.to_form, p.tokens, true, p.to_offset, false, {}, name});
  }
  return uses;
}

// Whether two uses overlap, given that their bytes may.
bool Conflict(const Use& a, const Use& b, const PreparedMove& move, TokenSets* sets) {
  const KeyForm& fa = move.forms[a.form];
  const KeyForm& fb = move.forms[b.form];
  if (a.bytes == b.bytes && fa.page_size == fb.page_size) {
    return sets->Meet(a, b, /*pages=*/false, 0);
  }
  // Layers of several groups may share a tensor, page by page.
  const int64_t page = fa.page_bytes;
  if (page != fb.page_bytes || page == 0) return true;
  const auto of_page = [&](const Use& use, int64_t base) {
    KeyBytes bytes = use.bytes;
    if (!bytes.steps.empty() && bytes.steps[0].distance == page) {
      bytes.steps.erase(bytes.steps.begin());
    }
    const int64_t first = (bytes.begin - base) % page;
    return first + bytes.end() - bytes.begin <= page;
  };
  const int64_t base = std::min(a.bytes.begin, b.bytes.begin);
  if (!of_page(a, base) || !of_page(b, base)) return true;
  const int64_t shift = (b.bytes.begin - base) / page - (a.bytes.begin - base) / page;
  return sets->Meet(a, b, /*pages=*/true, shift);
}

// INVALID_ARGUMENT: slot positions overlap rows of a layer, or those of another group.
absl::Status CheckSlotPositionsApart(const PreparedMove& move, const std::vector<Use>& uses,
                                     std::string_view path) {
  for (size_t g = 0; g < move.groups.size(); ++g) {
    const auto& positions = move.groups[g].slot_positions;
    if (!positions.has_value()) continue;
    const int64_t begin = positions->offset, end = begin + SlotPositionBytes(move, g);
    const auto overlaps = [&](size_t pool, int64_t other_begin, int64_t other_end) {
      return pool == positions->pool && begin < other_end && other_begin < end;
    };
    const std::string name = StrCat(path, ".groups[", g, "].slot_positions");
    for (const Use& use : uses) {
      if (!overlaps(use.pool, use.bytes.begin, use.bytes.end())) continue;
      return Invalid(name, ": between rows of ", use.path.substr(path.size() + 1),
                     "; must lie before or after all rows");
    }
    for (size_t i = 0; i < g; ++i) {
      const auto& other = move.groups[i].slot_positions;
      if (!other.has_value()) continue;
      if (!overlaps(other->pool, other->offset, other->offset + SlotPositionBytes(move, i))) {
        continue;
      }
      return Invalid(name, ": overlap those of groups[", i, "]; must be disjoint");
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t KeyBytes::end() const { return begin + SpanFrom(*this, 0); }

KeyBytes RowsOf(const KeyForm& form, int64_t offset) {
  std::vector<Step> steps = {{form.page_bytes, form.pages},
                             {form.slot_bytes, form.page_size},
                             {form.head_bytes, form.heads}};
  if (form.dense()) {
    return WithSteps(offset - form.bytes_before, form.bytes_before + form.bytes_from,
                     std::move(steps));
  }
  const int64_t in_group = std::min(form.group_lanes, form.head_dim);
  steps.push_back({form.lane_bytes, in_group});
  steps.push_back({form.group_bytes, form.head_dim / in_group});
  return WithSteps(offset, UnitBytes(form.code), std::move(steps));
}

KeyBytes ScalesOf(const KeyForm& form, int64_t offset) {
  const KeyScales& s = form.scales;
  return WithSteps(
      offset + s.offset, 4,
      {{s.page_bytes, form.pages}, {s.slot_bytes, form.page_size}, {s.head_bytes, form.heads}});
}

bool IsNested(const KeyBytes& bytes) {
  for (size_t i = 0; i < bytes.steps.size(); ++i) {
    if (bytes.steps[i].distance < SpanFrom(bytes, i + 1)) return false;
  }
  return true;
}

bool AreDisjoint(const KeyBytes& a, const KeyBytes& b) {
  return AreDisjointFrom(a, 0, b, 0, b.begin - a.begin);
}

absl::Status CheckPlaces(const PreparedMove& move, std::string_view path) {
  for (const Use& use : UsesOf(move, path)) {
    const std::string_view what = use.scales ? "scales" : "rows";
    const int64_t pool = move.pools[use.pool].bytes;
    if (!IsNested(use.bytes)) {
      return Invalid(use.path, ": ", what,
                     " overlap; must lie side by side or nested, see docs/move-keys.md");
    }
    if (use.bytes.begin >= 0 && use.bytes.end() <= pool) continue;
    return Invalid(use.path, ": ", what, " in bytes [", use.bytes.begin, ", ", use.bytes.end(),
                   "); must lie in its pool of ", pool, " bytes");
  }
  return absl::OkStatus();
}

absl::Status CheckOverlap(const PreparedMove& move, std::string_view path) {
  if (move.mode == MoveMode::kCompare) return absl::OkStatus();
  std::vector<Use> uses = UsesOf(move, path);
  std::stable_sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    return std::tuple(a.pool, a.bytes.begin) < std::tuple(b.pool, b.bytes.begin);
  });
  TokenSets sets(move);
  for (size_t i = 0; i < uses.size(); ++i) {
    for (size_t j = i + 1; j < uses.size(); ++j) {
      const Use& a = uses[i];
      const Use& b = uses[j];
      if (b.pool != a.pool || b.bytes.begin >= a.bytes.end()) break;
      if (!a.destination && !b.destination) continue;
      if (AreDisjoint(a.bytes, b.bytes) || !Conflict(a, b, move, &sets)) continue;
      if (a.path == b.path) {
        return Invalid(a.path, ": a token's destination is read as a source; must be another slot");
      }
      return Invalid(b.path, ": rows overlap those of ", a.path.substr(path.size() + 1),
                     "; must be disjoint");
    }
  }
  return CheckSlotPositionsApart(move, uses, path);
}

}  // namespace phasor
