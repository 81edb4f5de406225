// SPDX-License-Identifier: Apache-2.0
// Random moves, many of them wrong: each is refused, or does what a plain model does and leaves
// every byte alone that it does not name. AddressSanitizer sees
// where pools end.
#include <gtest/gtest.h>

#include <iostream>
#include <limits>
#include <map>
#include <random>

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
    for (int64_t g = 0; g < groups; ++g) request.groups.push_back(Group());
    return request;
  }

 private:
  bool Wild(int64_t n) { return wild_ && OneIn(n); }

  KeyLayout Layout() {
    KeyLayout layout;
    const auto& names = NamedKeyLayouts();
    const NamedKeyLayout& named = names[static_cast<size_t>(Of(0, std::ssize(names) - 1))];
    layout.name = OneIn(4) ? "" : named.name;
    layout.code = kKeyCodes[Of(0, std::ssize(kKeyCodes) - 1)];
    if (named.order.find('x') != std::string_view::npos) layout.code = KeyCode::kFloat16;
    if (named.order.find('S') != std::string_view::npos) layout.code = KeyCode::kInt8;
    if (named.order.find('W') != std::string_view::npos) layout.code = KeyCode::kBFloat16;
    layout.pages = 6;
    layout.page_size = 4;
    layout.heads = named.order.find('W') != std::string_view::npos ? 1 : Of(1, 3);
    layout.head_dim = head_dim_;
    layout.layers = OneIn(4) ? 2 : 1;
    if (OneIn(4) && IsBlockCode(layout.code)) layout.hadamard = 32;
    const bool inside = layout.name == "vllm-per-token-head";
    if (layout.code == KeyCode::kInt8 && !inside) {
      layout.scales =
          KeyScales{.offset = 100000, .page_bytes = 64, .slot_bytes = 16, .head_bytes = 4};
    }
    if (Wild(6)) layout.pages = Of(0, 5);
    if (Wild(8)) layout.page_size = Of(0, 5);
    if (Wild(8)) layout.page_bytes = Of(-1, 9000);
    if (Wild(8)) layout.slot_bytes = Of(0, 2000);
    if (Wild(8)) layout.head_bytes = Of(0, 1000);
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

// Marks what a plane may write: lanes and surroundings of its destination rows, and scales.
void MarkWritten(const PreparedMove& move, const MovePlane& plane, std::vector<Pool>* marks) {
  const KeyForm& form = move.forms[plane.to_form];
  Pool& pool = (*marks)[plane.to_pool];
  const auto mark = [&](int64_t at, int64_t bytes) {
    ASSERT_GE(at, 0);
    ASSERT_LE(at + bytes, std::ssize(pool));
    for (int64_t i = at; i < at + bytes; ++i) pool[static_cast<size_t>(i)] = std::byte{1};
  };
  for (const int64_t slot : move.groups[plane.tokens].to_slots) {
    for (int64_t h = 0; h < form.heads; ++h) {
      const int64_t row = plane.to_offset + form.RowOf(slot) + h * form.head_bytes;
      if (form.dense()) {
        mark(row - form.bytes_before, form.bytes_before + form.bytes_from);
      } else {
        for (int64_t i = 0; i < form.head_dim; ++i) {
          mark(row + i / form.group_lanes * form.group_bytes +
                   i % form.group_lanes * form.lane_bytes,
               UnitBytes(form.code));
        }
      }
      if (form.scaled_rows) mark(plane.to_offset + form.ScaleOf(slot, h), 4);
    }
  }
}

std::vector<Pool> Copied(const std::vector<Pool>& pools) { return pools; }

TEST(MoveRandomTest, RequestsAreRefusedOrChangeOnlyWhatTheyName) {
  constexpr int kRequests = 10000;
  const auto scalar = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  const auto simd = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  int accepted = 0, moved = 0;
  std::map<std::string, int> reasons;
  for (uint32_t seed = 1; seed <= kRequests; ++seed) {
    RandomMove random(seed);
    const MoveRequest request = random.Request();
    const auto move = PrepareMove(request, CompilePlan, "item");
    if (!move.ok()) {
      ++reasons[std::string(StatusCodeToString(move.status().code()))];
      EXPECT_EQ(move.status().message().substr(0, 4), "item") << move.status();
      continue;
    }
    ++accepted;
    std::vector<Pool> pools;
    for (const int64_t bytes : request.pools) {
      Pool& pool = pools.emplace_back(static_cast<size_t>(bytes));
      for (std::byte& byte : pool) byte = std::byte(random.Of(0, 255));
    }
    std::vector<Pool> marks;
    for (const Pool& pool : pools) marks.emplace_back(pool.size());
    for (const MovePlane& plane : move->planes) {
      if (request.mode != MoveMode::kCompare) MarkWritten(*move, plane, &marks);
    }
    const auto run = [&](Backend& backend, std::vector<Pool> memory) {
      std::vector<std::byte*> data;
      for (Pool& pool : memory) data.push_back(pool.data());
      std::vector<std::byte> report(move->layers * sizeof(KeyReport));
      const Job jobs[] = {MakeMoveJob(*move, data, report.data())};
      EXPECT_TRUE(backend.Run(jobs).ok());
      return memory;
    };
    const std::vector<Pool> after = run(*scalar, Copied(pools));
    for (size_t p = 0; p < pools.size(); ++p) {
      for (size_t i = 0; i < pools[p].size(); ++i) {
        if (marks[p][i] == std::byte{0}) {
          ASSERT_EQ(after[p][i], pools[p][i]) << "seed " << seed << " pool " << p << " byte " << i;
        } else {
          moved += after[p][i] != pools[p][i];
        }
      }
    }
    // NaNs of wide codes may differ in payload.
    bool wide = false;
    for (const KeyLayout& layout : request.layouts) wide |= layout.code <= KeyCode::kBFloat16;
    if (!wide) {
      ASSERT_EQ(run(*simd, Copied(pools)), after) << "seed " << seed;
    }
  }
  std::cout << accepted << " of " << kRequests << " accepted, " << moved << " bytes changed\n";
  for (const auto& [code, count] : reasons) std::cout << count << " refused: " << code << '\n';
  EXPECT_GT(accepted, kRequests / 10);
  EXPECT_GT(moved, 100000);
}

}  // namespace
}  // namespace phasor
