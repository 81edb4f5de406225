// SPDX-License-Identifier: Apache-2.0
// Sorts the tokens of a slice into those that turn and those that are copied, and chooses kernels.
#include "kernels/cuda/key_items.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/cuda/compare_keys.h"
#include "kernels/cuda/key_bytes.h"
#include "kernels/cuda/keys.h"
#include "kernels/cuda/move_keys.h"
#include "kernels/cuda/rotate_keys.h"
#include "kernels/cuda/rotate_scaled_keys.h"
#include "kernels/math/hadamard.h"

namespace phasor::cuda {
namespace {

// The most words of a token in one item, so that units are numbered in 32 bits.
constexpr int64_t kMostTokenWords = int64_t{1} << 24;

template <typename T>
InArena<T> PutAll(Arena& arena, const std::vector<T>& values) {
  return arena.Put(absl::MakeConstSpan(values));
}

SmallDivisor Small(int64_t value) { return MakeSmallDivisor(static_cast<int32_t>(value)); }

KeyWindow WindowOf(const MovePlane& plane, const KeyForm& form) {
  const ResolvedSpec& spec = plane.plan->spec;
  return phasor::WindowOf(form, spec.rotary_begin, spec.rotary_begin + spec.rotary_dim);
}

bool Stays(const MovePlane& plane, const MoveTokens& tokens, int64_t t) {
  if (plane.plan->fingerprint != plane.from_plan->fingerprint) return false;
  const auto from = tokens.from_positions.begin() + t * tokens.axes;
  return std::equal(from, from + tokens.axes, tokens.to_positions.begin() + t * tokens.axes);
}

// The plans of a slice that are in the arena already.
using PlanTurns = std::map<const Plan*, ItemTurns>;

// Where a slice's results go. Only COMPARE has some.
struct Results {
  std::byte* out = nullptr;
  int64_t first = 0;  // the token whose results lie there
  int64_t token_bytes = 0;
};

// Makes the items of planes that share specs and layouts. Threads: one thread at a time.
class PlaneItems {
 public:
  PlaneItems(const MoveJob& job, absl::Span<const GroupPlane> planes, const Results& results,
             PlanTurns& turns, LaunchList& list, ItemMaker maker)
      : job_(job),
        planes_(planes),
        results_(results),
        lead_(*planes[0].plane),
        from_((*job.forms)[lead_.form]),
        to_((*job.forms)[lead_.to_form]),
        tokens_((*job.groups)[lead_.tokens]),
        turns_(turns),
        list_(list),
        maker_(maker) {}

  void Add(int64_t first, int64_t count) {
    std::vector<int64_t> turned, kept;
    for (int64_t t = first; t < first + count; ++t) {
      const bool turns = lead_.plan != nullptr && !Stays(lead_, tokens_, t);
      (turns ? turned : kept).push_back(t);
    }
    if (job_.mode == MoveMode::kCompare) {
      AddCompare(turned, true);
      return AddCompare(kept, false);
    }
    const bool copies = job_.mode == MoveMode::kCopyOnWrite;
    const ByteRange row = WholeRow(from_, to_);
    if (!turned.empty()) {
      const KeyItem rows = RowsFor(turned);
      const ByteRange window = BytesOfLanes(from_, WindowOf(lead_, from_));
      AddMove(rows, turned);
      if (copies) AddCopy(rows, turned, {row.begin, window.begin}, {window.end, row.end});
    }
    if (!copies || kept.empty()) return;
    const KeyItem rows = RowsFor(kept);
    AddCopy(rows, kept, row, {});
    if (from_.scaled_rows) AddScales(rows, kept);
  }

 private:
  // The places of the tokens' rows.
  KeyItem RowsFor(const std::vector<int64_t>& tokens) {
    Arena& arena = maker_.arena;
    KeyItem item;
    if (planes_in_arena_.empty()) {
      std::vector<KeyPlane> planes;
      for (const auto& [plane, number, result] : planes_) {
        planes.push_back({job_.pools[plane->pool] + plane->offset,
                          job_.pools[plane->to_pool] + plane->to_offset, result});
        plane_bits_ |= BitsOf(planes.back().x) | BitsOf(planes.back().y);
      }
      planes_in_arena_ = PutAll(arena, planes);
    }
    item.planes = planes_in_arena_;
    item.heads = Small(from_.heads);
    item.from = SideOf(from_, tokens_.from_slots, tokens);
    item.to = SideOf(to_, tokens_.to_slots, tokens);
    return item;
  }

  KeySide SideOf(const KeyForm& form, const std::vector<int64_t>& slots,
                 const std::vector<int64_t>& tokens) {
    KeySide side;
    std::vector<int64_t> rows, scales;
    for (const int64_t t : tokens) {
      const int64_t slot = slots[static_cast<size_t>(t)];
      rows.push_back(form.RowOf(slot));
      if (form.scaled_rows) scales.push_back(form.ScaleOf(slot, 0));
    }
    side.rows = PutAll(maker_.arena, rows);
    if (form.scaled_rows) side.scales = PutAll(maker_.arena, scales);
    side.head_bytes = form.head_bytes;
    side.scale_head_bytes = form.scales.head_bytes;
    return side;
  }

  // Chooses the widest words for ranges of the rows.
  void SetWords(ByteRange first, ByteRange second, KeyItem& item) const {
    const auto of = [](ByteRange range) { return static_cast<uint64_t>(range.begin | range.end); };
    uint64_t bits = plane_bits_ | RowBits(from_) | RowBits(to_) | LaneBits(from_) | LaneBits(to_);
    if (first.bytes() > 0) bits |= of(first);
    if (second.bytes() > 0) bits |= of(second);
    const int64_t width = WidthOf(bits);
    item.width = static_cast<int32_t>(width);
    item.from.words = WordsOf(from_, width);
    item.to.words = WordsOf(to_, width);
  }

  int64_t heads() const { return std::ssize(planes_) * from_.heads; }

  void AddCopy(const KeyItem& rows, const std::vector<int64_t>& tokens, ByteRange first,
               ByteRange second) {
    CopyKeysItem item{rows};
    SetWords(first, second, item);
    AddWords(first, second, tokens, item);
  }

  void AddWords(ByteRange first, ByteRange second, const std::vector<int64_t>& tokens,
                CopyKeysItem& item) {
    const int64_t words = (first.bytes() + second.bytes()) / item.width;
    if (words == 0 || heads() == 0) return;
    item.head_words = Small(words);
    item.first_words = static_cast<int32_t>(first.bytes() / item.width);
    item.first = first.begin / item.width;
    item.second = second.begin / item.width;
    item.grid = MakeItemGrid({.rows = std::ssize(tokens),
                              .units = static_cast<int32_t>(heads() * words),
                              .processors = maker_.processors});
    list_.Add({.op = Op::kCopyKeys}, item);
  }

  // Copies the scales of rows, as rows of one number.
  void AddScales(const KeyItem& rows, const std::vector<int64_t>& tokens) {
    CopyKeysItem item{rows};
    const int64_t width = ScaleWidth();
    for (KeySide* side : {&item.from, &item.to}) {
      side->rows = side->scales;
      side->head_bytes = side->scale_head_bytes;
      side->words = {};
      side->words.group.value = 0;
      side->words.step = width;
    }
    item.width = static_cast<int32_t>(width);
    AddWords({0, sizeof(float)}, {}, tokens, item);
  }

  // The widest words in which scales of rows can be copied.
  int64_t ScaleWidth() const {
    uint64_t bits = plane_bits_ | sizeof(float);
    for (const KeyForm* form : {&from_, &to_}) {
      const KeyScales& scales = form->scales;
      bits |= static_cast<uint64_t>(scales.offset | scales.page_bytes | scales.slot_bytes |
                                    scales.head_bytes);
    }
    return WidthOf(bits);
  }

  KeyPositions PositionsOf(const std::vector<int64_t>& values, const Plan& plan,
                           const std::vector<int64_t>& tokens) {
    std::vector<int64_t> positions;
    for (const int64_t t : tokens) {
      for (int axis = 0; axis < plan.spec.axes; ++axis) {
        const int64_t own = tokens_.axes == 1 ? 0 : axis;
        positions.push_back(values[static_cast<size_t>(t * tokens_.axes + own)]);
      }
    }
    return {PutAll(maker_.arena, positions), plan.spec.axes};
  }

  void AddMove(const KeyItem& rows, const std::vector<int64_t>& tokens) {
    if (heads() == 0) return;
    const KeyWindow window = WindowOf(lead_, from_);
    MoveKeysItem item{{rows}};
    SetTurns(tokens, item);
    SetLanes(window, item);
    const int64_t count = std::ssize(tokens);
    if (MovesInRegisters(item)) return AddRotation(item, window.begin, count);
    if (RotatesWithScales(item)) return AddScaledRotation(item, window.begin, count);
    SetMoveGrid(count, item);
    list_.Add({.op = Op::kMoveKeys, .code = from_.code}, item);
  }

  // Whether a kernel that has each lane in a register does the move.
  bool MovesInRegisters(const MoveKeysItem& item) const {
    const bool is_float = from_.code <= KeyCode::kFloat8E5M2;
    return is_float && !item.scaled && item.hadamard_bits == 0 && from_.dense() && to_.dense() &&
           item.width == kVectorBytes &&
           item.pairs.value * UnitBytes(from_.code) % kVectorBytes == 0;
  }

  void AddRotation(const TurnedKeysItem& turned, int64_t rotary_begin, int64_t rows) {
    RotateKeysItem item{turned};
    const int64_t size = UnitBytes(from_.code), vector = kVectorBytes / size;
    const int64_t pairs = item.pairs.value;
    item.x_lanes = UnitLanesOf(rotary_begin, pairs, item.split_in, vector, size);
    item.y_lanes = UnitLanesOf(rotary_begin, pairs, item.split_out, vector, size);
    SetUnits(pairs / vector, kUnitsPerBlock, rows, item);
    list_.Add({.op = Op::kMoveKeys, .wide = true, .code = from_.code}, item);
  }

  // Whether a kernel that has each lane of rows with scales in a register does the move.
  bool RotatesWithScales(const MoveKeysItem& item) const {
    if (item.hadamard_bits != 0 || !from_.dense() || !to_.dense()) return false;
    const int32_t pairs = item.pairs.value;
    if (item.lanes.value != 2 * pairs) return false;
    if (item.scaled) {
      return item.width >= kRunLanes / 2 && pairs % kRunLanes == 0 && ScaleWidth() == sizeof(float);
    }
    // Half split, a block has first or second lanes alone.
    const int block_pairs = item.split_in || item.split_out ? 32 : 16;
    return from_.code == KeyCode::kQ8_0 && item.width > 1 && pairs % block_pairs == 0;
  }

  void AddScaledRotation(const MoveKeysItem& turned, int64_t begin, int64_t rows) {
    RotateScaledKeysItem item{{turned}};
    item.x_lanes = ScaledLanesOf(begin, item.pairs.value, item.split_in);
    item.y_lanes = ScaledLanesOf(begin, item.pairs.value, item.split_out);
    const int64_t units = item.pairs.value / kRunLanes;
    int64_t most = kScaledUnits;
    if (from_.code == KeyCode::kQ8_0) {
      item.head_words = turned.head_words;
      // An odd number of words of 8 bytes or more, so that heads begin in different banks.
      const int64_t word = std::max(item.width, 8);
      const int64_t words = (turned.head_words.value * item.width + word - 1) / word;
      item.head_stride = static_cast<int32_t>(((words + 1) | 1) * word);
      most = std::min(most, kRowBytes / item.head_stride * units);
    }
    SetUnits(units, most, rows, item);
    list_.Add({.op = Op::kRotateScaledKeys, .code = from_.code}, item);
  }

  UnitLanes ScaledLanesOf(int64_t begin, int64_t pairs, bool split) const {
    UnitLanes lanes = UnitLanesOf(begin, pairs, split, kRunLanes, 1);
    if (from_.code != KeyCode::kQ8_0) return lanes;
    const int64_t block = UnitBytes(from_.code);
    lanes.begin = static_cast<int32_t>(begin / key_blocks::kLanes * block);
    lanes.step = static_cast<int32_t>(block);
    if (split) lanes.second = static_cast<int32_t>(pairs / key_blocks::kLanes * block);
    return lanes;
  }

  // The grid of heads of `units` units, in blocks of at most `most`.
  void SetUnits(int64_t units, int64_t most, int64_t rows, RotateKeysItem& item) const {
    item.head_units = item.pair_units = Small(units);
    GridShape shape{.rows = rows,
                    .units = static_cast<int32_t>(heads() * units),
                    .processors = maker_.processors,
                    .most_units = static_cast<int32_t>(most),
                    .together = static_cast<int32_t>(units)};
    if (item.own_angles) {
      shape.most_units = std::min(shape.most_units, kAngleUnits);
    } else {
      shape.most_rows = static_cast<int32_t>(kAngleUnits / units);
    }
    item.grid = MakeItemGrid(shape);
  }

  // Compares tokens, after a move of theirs or as they are.
  void AddCompare(const std::vector<int64_t>& tokens, bool moves) {
    if (tokens.empty() || heads() == 0) return;
    CompareKeysItem item{{{RowsFor(tokens)}}};
    const KeyWindow all{0, from_.head_dim};
    SetLanes(all, item);
    item.moves = moves;
    item.pairs = Small(1);
    if (moves) {
      SetTurns(tokens, item);
      const KeyWindow window = WindowOf(lead_, from_);
      item.first_changed = static_cast<int32_t>(window.begin);
      item.end_changed = static_cast<int32_t>(window.end);
    }
    item.value_scale = from_.scale;
    std::vector<int64_t> results;
    for (const int64_t t : tokens) results.push_back((t - results_.first) * results_.token_bytes);
    item.results = PutAll(maker_.arena, results);
    item.out = results_.out;
    SetMoveGrid(std::ssize(tokens), item);
    list_.Add({.op = Op::kCompareKeys, .code = from_.code}, item);
  }

  // The lanes of heads that a block loads.
  void SetLanes(KeyWindow window, MoveKeysItem& item) const {
    const ByteRange bytes = BytesOfLanes(from_, window);
    const int64_t lanes = window.end - window.begin;
    SetWords(bytes, {}, item);
    item.scaled = from_.scaled_rows;
    item.lanes = Small(lanes);
    item.runs = Small(AlignUp(lanes, RunLanes(from_.code)) / RunLanes(from_.code));
    item.head_words = Small(bytes.bytes() / item.width);
    item.first_word = bytes.begin / item.width;
    if (lead_.plan != nullptr) {
      item.rotary_begin = static_cast<int32_t>(lead_.plan->spec.rotary_begin - window.begin);
    }
    item.row_bytes = static_cast<int32_t>(AlignUp(bytes.bytes(), 2 * kWidestWord));
    if (from_.hadamard == 0) return;
    item.hadamard_bits = std::countr_zero(static_cast<uint64_t>(from_.hadamard));
    item.hadamard_factor = HadamardFactor(from_.hadamard);
  }

  // How they turn.
  void SetTurns(const std::vector<int64_t>& tokens, TurnedKeysItem& item) {
    const Plan &plan = *lead_.plan, &from_plan = *lead_.from_plan;
    item.positions = PositionsOf(tokens_.to_positions, plan, tokens);
    item.from_positions = PositionsOf(tokens_.from_positions, from_plan, tokens);
    item.turns = TurnsOf(plan);
    item.from_turns = TurnsOf(from_plan);
    item.amplitude = plan.amplitude / from_plan.amplitude;
    item.split_in = from_plan.spec.pairing_out == Pairing::kHalfSplit;
    item.split_out = plan.spec.pairing_out == Pairing::kHalfSplit;
    item.own_angles = plan.heads > 1;
    item.pairs = Small(plan.spec.rotary_dim / 2);
    if (item.own_angles) item.head_pairs = plan.head_pairs();
  }

  const ItemTurns& TurnsOf(const Plan& plan) {
    const auto known = turns_.find(&plan);
    if (known != turns_.end()) return known->second;
    return turns_.emplace(&plan, MakeTurns(plan, maker_.arena)).first->second;
  }

  // Blocks of as many heads as fit, and fewer if the device would not have enough blocks.
  void SetMoveGrid(int64_t rows, MoveKeysItem& item) const {
    const int64_t angle_rows = kKeyAngles / item.pairs.value;
    int64_t most = std::min({int64_t{kKeyLanes / (item.runs.value * RunLanes(from_.code))},
                             int64_t{kKeyBytes / item.row_bytes}, int64_t{kThreads}});
    if (item.own_angles) most = std::min(most, angle_rows);
    const int64_t share = rows * heads() / (int64_t{kBlocksPerProcessor} * maker_.processors);
    most = std::clamp<int64_t>(share, 1, most);
    item.quads = Small((item.pairs.value + 3) / 4);
    GridShape shape{.rows = rows,
                    .units = static_cast<int32_t>(heads()),
                    .processors = maker_.processors,
                    .most_units = static_cast<int32_t>(most)};
    if (!item.own_angles) shape.most_rows = static_cast<int32_t>(angle_rows);
    item.grid = MakeItemGrid(shape);
  }

  const MoveJob& job_;
  const absl::Span<const GroupPlane> planes_;
  const Results results_;
  const MovePlane& lead_;
  const KeyForm& from_;
  const KeyForm& to_;
  const MoveTokens& tokens_;
  PlanTurns& turns_;
  LaunchList& list_;
  ItemMaker maker_;
  InArena<KeyPlane> planes_in_arena_;
  uint64_t plane_bits_ = 0;
};

bool IsSupportedPlane(const MoveJob& job, const MovePlane& plane) {
  const KeyForm& from = (*job.forms)[plane.form];
  const KeyForm& to = (*job.forms)[plane.to_form];
  const int64_t row_bytes = from.bytes_before + from.bytes_from;
  if (from.heads >= kMostTokenWords || row_bytes >= kMostTokenWords) return false;
  if (RowBytes(from) >= kMostTokenWords) return false;
  const uint64_t pools = BitsOf(job.pools[plane.pool] + plane.offset) |
                         BitsOf(job.pools[plane.to_pool] + plane.to_offset);
  for (const KeyForm* form : {&from, &to}) {
    if (!IsStrided(*form) || !HasGroups(*form)) continue;
    const uint64_t bits = pools | RowBits(from) | RowBits(to) | LaneBits(from) | LaneBits(to);
    if (WidthOf(bits) < UnitBytes(form->code)) return false;
  }
  const bool turns = plane.plan != nullptr;
  if (turns && PairsInBlocks(plane.from_plan->spec.pairing_out, plane.plan->spec.pairing_out)) {
    return false;
  }
  if (job.mode == MoveMode::kCompare) return from.head_dim <= kMostKeyLanes;
  if (!turns) return true;
  const KeyWindow window = WindowOf(plane, from);
  return window.end - window.begin <= kMostKeyLanes;
}

// Adds an item that writes the positions of tokens to their slots.
void AddSlotPositions(const MoveJob& job, const MoveTokens& tokens, int64_t first, int64_t count,
                      LaunchList& list, ItemMaker maker) {
  const auto begin = static_cast<size_t>(first), size = static_cast<size_t>(count);
  SlotPositionsItem item;
  item.slots = maker.arena.Put(absl::MakeConstSpan(tokens.to_slots).subspan(begin, size));
  const auto positions = absl::MakeConstSpan(tokens.to_positions).subspan(begin, size);
  item.positions = PutAll(maker.arena, std::vector<uint32_t>(positions.begin(), positions.end()));
  item.first = job.pools[tokens.slot_positions->pool] + tokens.slot_positions->offset;
  item.grid = MakeItemGrid({.rows = count, .units = 1, .processors = maker.processors});
  list.Add({.op = Op::kSlotPositions}, item);
}

}  // namespace

bool IsSupported(const MoveJob& job) {
  return std::all_of(job.planes->begin(), job.planes->end(),
                     [&](const MovePlane& plane) { return IsSupportedPlane(job, plane); });
}

void AddKeyItems(const MoveJob& job, Slice slice, std::byte* results, LaunchList& list,
                 ItemMaker maker) {
  const GroupRow at = FindGroup(job, slice.first);
  const MoveTokens& tokens = (*job.groups)[at.group];
  const Results to{results, at.row, ResultBytes(job)};
  PlanTurns turns;
  std::vector<GroupPlane> left = PlanesOf(job, at.group);
  const auto key = [](const MovePlane& plane) {
    return std::tuple(plane.plan, plane.from_plan, plane.form, plane.to_form);
  };
  while (!left.empty()) {
    const MovePlane& lead = *left[0].plane;
    const int64_t most = kMostTokenWords / RowBytes((*job.forms)[lead.form]);
    int64_t taken = 0;
    const auto others = std::stable_partition(left.begin(), left.end(), [&](const auto& each) {
      return key(*each.plane) == key(lead) && taken++ < most;
    });
    const auto same = static_cast<size_t>(others - left.begin());
    PlaneItems(job, absl::MakeConstSpan(left.data(), same), to, turns, list, maker)
        .Add(at.row, slice.count);
    left.erase(left.begin(), others);
  }
  if (tokens.slot_positions.has_value() && job.mode != MoveMode::kCompare) {
    AddSlotPositions(job, tokens, at.row, slice.count, list, maker);
  }
}

}  // namespace phasor::cuda
