// SPDX-License-Identifier: Apache-2.0
// Random moves, many of them wrong, some stopped before they end: each is refused, or leaves every
// byte alone that it does not name. AddressSanitizer sees where pools end.
#include <gtest/gtest.h>

#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "kernels/request/slot_positions.h"
#include "tests/support/backends.h"
#include "tests/support/key_cache.h"

namespace phasor {
namespace {

using testing::Pool;

class RandomMove {
 public:
  explicit RandomMove(uint32_t seed) : generator_(seed) {}
  int64_t Of(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(generator_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int64_t n) { return Of(1, n) == 1; }

  // Random bytes, from a place of their own in a store of them: drawing each would take most of the
  // test's time.
  Pool Bytes(int64_t bytes) {
    static const Pool* const store = [] {
      auto* const drawn = new Pool(1 << 20);
      std::mt19937 generator(1);
      for (std::byte& byte : *drawn) byte = std::byte(generator());
      return drawn;
    }();
    const auto first = store->begin() + Of(0, std::ssize(*store) - bytes);
    return Pool(first, first + bytes);
  }

  // Half of the requests are drawn to be right. The others have fields of any value.
  MoveRequest Request() {
    wild_ = OneIn(2);
    head_dim_ = OneIn(2) ? 64 : 32;
    MoveRequest request;
    request.mode = static_cast<MoveMode>(Of(0, 2));
    copies_ = request.mode != MoveMode::kMove;
    const int64_t groups = Of(1, 2);
    Spec spec;
    spec.preset = OneIn(2) ? "rope-half-split" : "rope-interleaved";
    if (OneIn(4)) spec.rotary_dim = 16;
    request.specs = {{.spec = spec}};
    for (int64_t i = Of(1, 3); i > 0; --i) request.layouts.push_back(Layout());
    for (int64_t i = 0; i < Of(groups, 3); ++i) {
      KeyLayer layer;
      layer.layout = Of(0, std::ssize(request.layouts) - 1);
      if (!OneIn(5) || i == 0) layer.spec = 0;
      layer.group = i < groups ? i : Of(0, groups - 1);
      layer.place = {std::ssize(request.pools), Of(0, 100)};
      request.pools.push_back(Wild(4) ? Of(1, 20000) : 128 << 10);
      if (copies_ && OneIn(3)) {
        layer.to_place = KeyPlace{std::ssize(request.pools), Of(0, 100)};
        request.pools.push_back(128 << 10);
      }
      if (Wild(4)) layer.place.pool = Of(-1, 3);
      if (Wild(4)) layer.to_place = KeyPlace{Of(0, 3), Of(-1, 90000)};
      if (Wild(6)) layer.to_layout = Of(0, 3);
      if (Wild(8)) layer.layer = Of(-1, 2);
      request.layers.push_back(layer);
    }
    for (int64_t g = 0; g < groups; ++g) {
      request.groups.push_back(Group());
      if (!OneIn(3)) continue;
      request.groups.back().slot_positions = KeyPlace{std::ssize(request.pools), Of(0, 9)};
      request.pools.push_back(Wild(4) ? Of(1, 120) : 120);
      if (Wild(4)) request.groups.back().slot_positions->pool = Of(-1, 3);
      if (Wild(4)) request.groups.back().slot_positions->offset_bytes = Of(-1, 130000);
    }
    return request;
  }

  // Gives the slots of all tokens the position before or after the move, or rarely another one.
  void SetPositions(const PreparedMove& move, std::vector<Pool>* pools) {
    for (const MoveTokens& tokens : move.groups) {
      if (!tokens.slot_positions.has_value()) continue;
      for (size_t t = 0; t < tokens.to_slots.size(); ++t) {
        const bool after = move.mode == MoveMode::kCompare || OneIn(3);
        int64_t position = (after ? tokens.to_positions : tokens.from_positions)[t];
        if (OneIn(50)) position = 999999;
        PutPosition(tokens, t, position, pools);
      }
    }
  }
  static void PutPosition(const MoveTokens& tokens, size_t t, int64_t position,
                          std::vector<Pool>* pools) {
    const auto bits = static_cast<uint32_t>(position);
    std::byte* const first = (*pools)[tokens.slot_positions->pool].data();
    std::memcpy(first + tokens.slot_positions->offset + 4 * tokens.to_slots[t], &bits, 4);
  }

 private:
  bool Wild(int64_t n) { return wild_ && OneIn(n); }

  // Powers of two whose product often does not fit into 64 bits, or a distance that nothing uses.
  void MakeFar(KeyLayout* layout) {
    const std::pair<int64_t*, std::optional<int64_t>*> all[] = {
        {&layout->pages, &layout->page_bytes},
        {&layout->page_size, &layout->slot_bytes},
        {&layout->heads, &layout->head_bytes}};
    const auto& [extent, distance] = all[Of(0, 2)];
    *extent = OneIn(3) ? 1 : int64_t{1} << Of(20, 38);
    *distance = int64_t{1} << Of(20, 50);
  }

  KeyLayout Layout() {
    KeyLayout layout;
    const auto& names = NamedKeyLayouts();
    const NamedKeyLayout& named = names[static_cast<size_t>(Of(0, std::ssize(names) - 1))];
    layout.name = OneIn(4) ? "" : named.name;
    layout.code = kKeyCodes[Of(0, std::ssize(kKeyCodes) - 1)];
    if (named.order.find('x') != std::string_view::npos) layout.code = KeyCode::kFloat16;
    if (named.order.find('S') != std::string_view::npos) layout.code = KeyCode::kInt8;
    if (named.order.find('W') != std::string_view::npos) {
      layout.code = named.code.value_or(KeyCode::kBFloat16);
    }
    layout.pages = 6;
    layout.page_size = 4;
    layout.heads = named.order.find('W') != std::string_view::npos ? 1 : Of(1, 3);
    layout.head_dim = head_dim_;
    layout.layers = OneIn(4) ? 2 : 1;
    if (OneIn(4) && IsBlockCode(layout.code)) layout.hadamard = 32;
    const bool inside = layout.name.starts_with("vllm-per-token-head");
    if (layout.code == KeyCode::kInt8 && !inside) {
      layout.scales =
          KeyScales{.offset = 100000, .page_bytes = 64, .slot_bytes = 16, .head_bytes = 4};
    }
    if (Wild(6)) layout.pages = Of(0, 5);
    if (Wild(8)) layout.page_size = Of(0, 5);
    if (Wild(8)) layout.page_bytes = Of(-1, 9000);
    if (Wild(8)) layout.slot_bytes = Of(0, 2000);
    if (Wild(8)) layout.head_bytes = Of(0, 1000);
    if (Wild(8)) MakeFar(&layout);
    if (Wild(12)) layout.lane_bytes = Of(0, 64);
    if (Wild(12)) layout.group_lanes = Of(0, 80);
    if (Wild(12)) layout.group_bytes = Of(0, 512);
    if (Wild(12)) layout.lanes_offset = Of(-1, 64);
    if (Wild(12)) layout.row_bytes = Of(0, 512);
    if (Wild(12)) layout.hadamard = Of(0, 64);
    if (Wild(12)) layout.scales = KeyScales{Of(-8, 130000), Of(0, 512), Of(0, 64), Of(0, 8)};
    return layout;
  }

  // Reads pages 0 to 2. Copies go to pages 3 to 5.
  KeyGroup Group() {
    KeyGroup group;
    if (!OneIn(4)) {
      KeyRun run{.block_table = {2, 0},
                 .first = Of(0, 3),
                 .count = Of(0, 5),
                 .from = Of(-50, 5000),
                 .to = Of(-50, 5000)};
      if (copies_) run.to_block_table = {5, 3};
      if (Wild(4)) run.count = Of(-1, 9);
      if (Wild(4)) run.block_table[0] = Of(-1, 6);
      if (Wild(4)) run.to_block_table = {Of(0, 6), Of(0, 6)};
      if (Wild(4)) run.to_first = Of(-1, 8);
      if (Wild(8)) run.from = std::numeric_limits<int64_t>::max() - Of(0, 5);
      group.runs.push_back(run);
      if (OneIn(4)) group.runs.push_back(group.runs[0]);  // two tokens for one slot
    }
    if (!group.runs.empty() && OneIn(2)) return group;
    KeySlots& slots = group.slots;
    for (int64_t i = 0; i < 4; ++i) {
      if (OneIn(3)) continue;
      slots.slots.push_back(4 + i);
      slots.from_positions.push_back(Of(-50, 5000));
      slots.positions.push_back(OneIn(5) ? slots.from_positions.back() : Of(0, 5000));
      if (copies_) slots.to_slots.push_back(16 + i);
    }
    if (!slots.slots.empty() && Wild(4)) slots.slots[0] = Of(-1, 25);
    if (!slots.to_slots.empty() && Wild(4)) slots.to_slots[0] = Of(-1, 25);
    if (Wild(8)) slots.positions.push_back(0);
    return group;
  }

  bool wild_ = false;
  bool copies_ = false;
  int64_t head_dim_ = 0;
  std::mt19937 generator_;
};

// Bytes of a pool.
struct WrittenRange {
  size_t pool;
  int64_t at;
  int64_t bytes;
};

// What a plane may write: lanes and surroundings of its destination rows, and scales.
void AddWritten(const PreparedMove& move, const MovePlane& plane,
                std::vector<WrittenRange>* ranges) {
  const KeyForm& form = move.forms[plane.to_form];
  const auto add = [&](int64_t at, int64_t bytes) {
    ASSERT_GE(at, 0);
    ASSERT_LE(at + bytes, move.pools[plane.to_pool].bytes);
    ranges->push_back({plane.to_pool, at, bytes});
  };
  for (const int64_t slot : move.groups[plane.tokens].to_slots) {
    for (int64_t h = 0; h < form.heads; ++h) {
      const int64_t row = plane.to_offset + form.RowOf(slot) + h * form.head_bytes;
      if (form.dense()) {
        add(row - form.bytes_before, form.bytes_before + form.bytes_from);
      } else {
        for (int64_t i = 0; i < form.head_dim; ++i) {
          add(row + i / form.group_lanes * form.group_bytes +
                  i % form.group_lanes * form.lane_bytes,
              UnitBytes(form.code));
        }
      }
      if (form.scaled_rows) add(plane.to_offset + form.ScaleOf(slot, h), 4);
    }
  }
}

// All that a move may write, beside slot positions.
std::vector<WrittenRange> WrittenBy(const PreparedMove& move) {
  std::vector<WrittenRange> ranges;
  if (move.mode == MoveMode::kCompare) return ranges;
  for (const MovePlane& plane : move.planes) AddWritten(move, plane, &ranges);
  return ranges;
}

// Puts back what lies in the ranges, and counts the bytes that differed.
int PutRangesBack(const std::vector<WrittenRange>& ranges, const std::vector<Pool>& before,
                  std::vector<Pool>* after) {
  int changed = 0;
  for (const auto& [pool, at, bytes] : ranges) {
    const std::byte* const from = before[pool].data() + at;
    std::byte* const to = (*after)[pool].data() + at;
    for (int64_t i = 0; i < bytes; ++i) changed += from[i] != to[i];
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  return changed;
}

// Runs the move on a copy of the pools, which it returns. Only `pieces` pieces or tiles may begin.
std::vector<Pool> RunOnCopy(const PreparedMove& move, Backend& backend, std::vector<Pool> pools,
                            int pieces = std::numeric_limits<int>::max()) {
  std::vector<std::byte*> data;
  for (Pool& pool : pools) data.push_back(pool.data());
  std::vector<std::byte> report(move.layers * sizeof(KeyReport));
  MoveJob job = MakeMoveJob(move, data, report.data());
  Stop stop([&] { return --pieces >= 0 ? absl::OkStatus() : absl::CancelledError("enough"); });
  job.stop = &stop;
  const Job jobs[] = {job};
  EXPECT_TRUE(backend.Run(jobs).ok());
  return pools;
}

absl::Status ReadMovePositions(const std::vector<Pool>& pools, PreparedMove* move) {
  std::vector<const std::byte*> data;
  for (const Pool& pool : pools) data.push_back(pool.data());
  return ReadSlotPositions(data, "item", move);
}

TEST(MoveRandomTest, RequestsAreRefusedOrChangeOnlyWhatTheyName) {
  constexpr int kRequests = 10000;
  const auto scalar = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  const cpu::Target widest = cpu::RunnableTargets().front();
  const auto simd = cpu::MakeCpuBackend({widest, 1});
  const auto streaming =
      cpu::MakeCpuBackend({.target = widest, .stream_bytes = 1, .pages_in_turns = 1});
  int accepted = 0, moved = 0, left_out = 0, stopped = 0;
  std::map<std::string, int> reasons;
  const auto refuse = [&](const absl::Status& status) {
    ++reasons[std::string(StatusCodeToString(status.code()))];
    EXPECT_EQ(status.message().substr(0, 4), "item") << status;
  };
  for (uint32_t seed = 1; seed <= kRequests; ++seed) {
    SCOPED_TRACE(seed);
    RandomMove random(seed);
    const MoveRequest request = random.Request();
    auto move = PrepareMove(request, CompilePlan, "item");
    if (!move.ok()) {
      refuse(move.status());
      continue;
    }
    std::vector<Pool> pools;
    for (const int64_t bytes : request.pools) pools.push_back(random.Bytes(bytes));
    random.SetPositions(*move, &pools);
    const int64_t tokens = move->tokens;
    if (const absl::Status read = ReadMovePositions(pools, &*move); !read.ok()) {
      refuse(read);
      continue;
    }
    ++accepted;
    left_out += tokens != move->tokens;
    const std::vector<WrittenRange> ranges = WrittenBy(*move);
    std::vector<Pool> expected = pools;  // beside the ranges
    if (request.mode != MoveMode::kCompare) {
      for (const MoveTokens& group : move->groups) {
        for (size_t t = 0; t < group.to_slots.size() && group.slot_positions.has_value(); ++t) {
          RandomMove::PutPosition(group, t, group.to_positions[t], &expected);
        }
      }
    }
    std::vector<Pool> after = RunOnCopy(*move, *scalar, pools);
    // NaNs of wide codes may differ in payload.
    bool wide = false;
    for (const KeyLayout& layout : request.layouts) wide |= layout.code <= KeyCode::kBFloat16;
    if (!wide) {
      ASSERT_EQ(RunOnCopy(*move, seed % 2 == 0 ? *simd : *streaming, pools), after);
    }
    moved += PutRangesBack(ranges, pools, &after);
    ASSERT_EQ(after == expected, true) << "bytes beside the rows changed";
    if (!random.OneIn(4)) continue;
    ++stopped;  // before its first piece, or by chance later
    const auto pieces = static_cast<int>(random.Of(0, 1));
    after = RunOnCopy(*move, *simd, pools, pieces);
    PutRangesBack(ranges, pools, &after);
    ASSERT_EQ(after == pools || (pieces > 0 && after == expected), true);
  }
  std::cout << accepted << " of " << kRequests << " accepted, " << moved << " bytes changed, "
            << left_out << " in part done before, " << stopped << " stopped\n";
  for (const auto& [code, count] : reasons) std::cout << count << " refused: " << code << '\n';
  EXPECT_GT(accepted, kRequests / 10);
  EXPECT_GT(moved, 100000);
  EXPECT_GT(left_out, kRequests / 100);
  EXPECT_GT(stopped, kRequests / 100);
}

}  // namespace
}  // namespace phasor
