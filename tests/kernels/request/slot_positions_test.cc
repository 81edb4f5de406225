// SPDX-License-Identifier: Apache-2.0
// Slot positions say which tokens of a move are done; wrong ones are refused before anything moves.
#include "kernels/request/slot_positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/plan/plan.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::PresetSpec;
using testing::StatusIs;

constexpr int64_t kPositionSlots = 8 * 4;
constexpr int64_t kPositionCacheBytes =
    kPositionSlots * 2 * 64 * 2;        // bfloat16, 2 heads of 64 lanes
constexpr int64_t kPositionsBegin = 3;  // of the positions in their pool

// Moves 4 tokens in slots 8 to 11 from positions 100.. to 7.. . Pool 1 has the positions.
MoveRequest WithPositions(MoveMode mode = MoveMode::kMove) {
  MoveRequest request;
  request.mode = mode;
  request.pools = {kPositionCacheBytes, kPositionsBegin + 4 * kPositionSlots};
  request.layouts = {{.name = "nhd", .pages = 8, .page_size = 4, .heads = 2, .head_dim = 64}};
  request.specs = {{.spec = PresetSpec("rope-half-split")}};
  request.layers = {{.spec = 0}};
  request.groups = {{.runs = {{.block_table = {2}, .count = 4, .from = 100, .to = 7}},
                     .slot_positions = KeyPlace{1, kPositionsBegin}}};
  if (mode != MoveMode::kMove) request.groups[0].runs[0].to_block_table = {5};
  return request;
}

absl::StatusOr<PreparedMove> PreparePositions(const MoveRequest& request) {
  return PrepareMove(request, CompilePlan, "item");
}

// PositionPools of which the second has these positions from slot `first` on, and 0 before.
class PositionPools {
 public:
  PositionPools(size_t first, const std::vector<uint32_t>& positions)
      : bytes_(kPositionsBegin + 4 * kPositionSlots) {
    for (size_t i = 0; i < positions.size(); ++i) {
      std::memcpy(bytes_.data() + kPositionsBegin + 4 * (first + i), &positions[i], 4);
    }
  }
  absl::Status Read(PreparedMove* move) const {
    const std::byte* const pools[] = {nullptr, bytes_.data()};
    return ReadSlotPositions(pools, "item", move);
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST(SlotPositionsTest, TokensThatAreDoneAreLeftOut) {
  auto move = PreparePositions(WithPositions());
  ASSERT_THAT(move, IsOk());
  EXPECT_TRUE(move->pools[1].written);
  const int64_t bytes = move->moved_bytes;
  ASSERT_THAT(PositionPools(8, {7, 101, 9, 103}).Read(&*move), IsOk());
  EXPECT_THAT(move->groups[0].to_slots, ElementsAre(9, 11));
  EXPECT_THAT(move->groups[0].from_slots, ElementsAre(9, 11));
  EXPECT_THAT(move->groups[0].from_positions, ElementsAre(101, 103));
  EXPECT_THAT(move->groups[0].to_positions, ElementsAre(8, 10));
  EXPECT_EQ(move->tokens, 2);
  EXPECT_EQ(move->moved_bytes, bytes / 2);
}

TEST(SlotPositionsTest, ASlotWithAnotherPositionIsRefused) {
  auto move = PreparePositions(WithPositions());
  ASSERT_THAT(move, IsOk());
  EXPECT_THAT(
      PositionPools(8, {100, 101, 99, 103}).Read(&*move),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("item.groups[0].slot_positions: slot 10 has position 99; must be 102 "
                         "before the move, or 9 after it")));
  EXPECT_EQ(move->groups[0].count(), 4);
}

TEST(SlotPositionsTest, AComparisonWantsThePositionsAfterTheMove) {
  auto move = PreparePositions(WithPositions(MoveMode::kCompare));
  ASSERT_THAT(move, IsOk());
  EXPECT_FALSE(move->pools[1].written);
  EXPECT_THAT(PositionPools(20, {7, 8, 9, 10}).Read(&*move), IsOk());
  EXPECT_EQ(move->tokens, 4);
  EXPECT_THAT(PositionPools(20, {100, 8, 9, 10}).Read(&*move),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("slot 20 has position 100; must be 7")));
}

TEST(SlotPositionsTest, PositionsAreCopiedInAFewStretchesOfAscendingSlots) {
  MoveRequest request = WithPositions();
  constexpr int64_t kManyPages = 100'000;  // of 4 slots, more than one stretch
  request.layouts[0].pages = kManyPages;
  request.pools = {kManyPages * 4 * 2 * 64 * 2, kManyPages * 4 * 4};
  request.groups[0].slot_positions = KeyPlace{1, 0};
  request.groups[0].runs = {
      {.block_table = {90'000, 3, 2, 89'999}, .count = 16, .from = 100, .to = 7}};
  auto move = PreparePositions(request);
  ASSERT_THAT(move, IsOk());
  std::vector<uint32_t> positions(kManyPages * 4);
  const int64_t first_slots[] = {360'000, 12, 8, 359'996};
  for (uint32_t i = 0; i < 16; ++i) positions[first_slots[i / 4] + i % 4] = 100 + i;
  const std::byte* const pools[] = {nullptr, reinterpret_cast<const std::byte*>(positions.data())};
  std::vector<std::pair<int64_t, int64_t>> reads;
  const auto read = [&](const std::byte* from, int64_t bytes, std::byte* out) {
    reads.emplace_back(from - pools[1], bytes);
    return ReadHostMemory(from, bytes, out);
  };
  EXPECT_THAT(ReadSlotPositions(pools, "item", &*move, read), IsOk());
  EXPECT_EQ(move->tokens, 16);
  EXPECT_THAT(reads, ElementsAre(std::pair(8 * 4, 8 * 4), std::pair(359'996 * 4, 8 * 4)));
  const auto lost = [](const std::byte*, int64_t, std::byte*) {
    return absl::AbortedError("lost");
  };
  EXPECT_THAT(ReadSlotPositions(pools, "item", &*move, lost),
              StatusIs(absl::StatusCode::kAborted, "lost"));
}

TEST(SlotPositionsTest, ACopyReadsNoPositions) {
  auto move = PreparePositions(WithPositions(MoveMode::kCopyOnWrite));
  ASSERT_THAT(move, IsOk());
  EXPECT_TRUE(move->pools[1].written);
  EXPECT_THAT(PositionPools(20, {1, 2, 3, 4}).Read(&*move), IsOk());
  EXPECT_EQ(move->tokens, 4);
}

template <typename Change>
void ExpectPositionsRefused(const std::string& message, Change change,
                            MoveMode mode = MoveMode::kCopyOnWrite) {
  MoveRequest request = WithPositions(mode);
  change(request);
  EXPECT_THAT(PreparePositions(request),
              StatusIs(kInvalid, HasSubstr("item.groups[0].slot_positions" + message)));
}

TEST(SlotPositionsTest, WrongOnesAreRefusedWithTheirField) {
  ExpectPositionsRefused(".pool: 2", [](auto& r) { r.groups[0].slot_positions->pool = 2; });
  ExpectPositionsRefused(".offset_bytes: -1",
                         [](auto& r) { r.groups[0].slot_positions->offset_bytes = -1; });
  ExpectPositionsRefused(": 128 bytes, 4 for each slot; must be at most 127",
                         [](auto& r) { ++r.groups[0].slot_positions->offset_bytes; });
  ExpectPositionsRefused(": token 0 has position -1; must be in [0, 2^32)",
                         [](auto& r) { r.groups[0].runs[0].from = -1; });
  ExpectPositionsRefused(": token 3 has position 4294967296; must be in [0, 2^32)",
                         [](auto& r) { r.groups[0].runs[0].to = (int64_t{1} << 32) - 3; });
  ExpectPositionsRefused(": between rows of layers[0]", [](auto& r) {
    r.groups[0].slot_positions = KeyPlace{0, kPositionCacheBytes - 4 * kPositionSlots};
  });
  ExpectPositionsRefused(": set for positions of 2 axes", [](auto& r) {
    r.groups[0].runs.clear();
    r.groups[0].slots = {
        .slots = {0}, .to_slots = {9}, .from_positions = {1, 2}, .positions = {3, 4}};
  });
}

TEST(SlotPositionsTest, NoTwoGroupsShareThem) {
  MoveRequest request = WithPositions();
  request.pools[0] *= 2;
  request.layers.push_back({.spec = 0, .group = 1, .place = {0, kPositionCacheBytes}});
  request.groups.push_back(request.groups[0]);
  EXPECT_THAT(PreparePositions(request),
              StatusIs(kInvalid, HasSubstr("item.groups[1].slot_positions: overlap those of "
                                           "groups[0]; must be disjoint")));
  request.pools.push_back(request.pools[1]);
  request.groups[1].slot_positions->pool = 2;
  EXPECT_THAT(PreparePositions(request), IsOk());
}

// Where the position stays and the spec changes, it cannot say whether a token is done.
TEST(SlotPositionsTest, AMoveThatKeepsPositionsMustKeepTheSpec) {
  MoveRequest request = WithPositions();
  request.groups[0].runs[0].to = 100;
  EXPECT_THAT(PreparePositions(request), IsOk());
  request.specs[0].from_spec = request.specs[0].spec;
  request.specs[0].from_spec->rope_theta = 500000;
  EXPECT_THAT(PreparePositions(request),
              StatusIs(kInvalid, HasSubstr("item.groups[0].slot_positions: token 0 keeps its "
                                           "position under another spec")));
  request.groups[0].runs[0].to = 99;
  EXPECT_THAT(PreparePositions(request), IsOk());
}

}  // namespace
}  // namespace phasor
