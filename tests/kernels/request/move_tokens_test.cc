// SPDX-License-Identifier: Apache-2.0
// Runs and slots as lists of tokens, and those that must be refused.
#include "kernels/request/move_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::StatusIs;

constexpr KeyPages kPages = {.page_size = 4, .slots = 24, .to_page_size = 8, .to_slots = 32};
constexpr MoveMode kCopy = MoveMode::kCopyOnWrite;

KeyRun ARun() { return {.block_table = {5, 1}, .first = 2, .count = 4, .from = 10, .to = 3}; }

TEST(MoveTokensTest, ARunFollowsItsBlockTable) {
  const auto tokens = ExpandTokens({.runs = {ARun()}}, {4, 24, 4, 24}, MoveMode::kMove, "group");
  ASSERT_THAT(tokens, IsOk());
  EXPECT_THAT(tokens->from_slots, ElementsAre(22, 23, 4, 5));
  EXPECT_EQ(tokens->to_slots, tokens->from_slots);
  EXPECT_THAT(tokens->from_positions, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(tokens->to_positions, ElementsAre(3, 4, 5, 6));
}

TEST(MoveTokensTest, ARunGoesToPagesOfAnotherSize) {
  KeyRun run = ARun();
  run.to_block_table = {3, 0};
  run.to_first = 6;
  const auto tokens = ExpandTokens({.runs = {run}}, kPages, kCopy, "group");
  ASSERT_THAT(tokens, IsOk());
  EXPECT_THAT(tokens->to_slots, ElementsAre(30, 31, 0, 1));
}

TEST(MoveTokensTest, SlotsFollowRuns) {
  const KeyGroup group = {
      .runs = {ARun()},
      .slots = {
          .slots = {0, 1}, .to_slots = {8, 9}, .from_positions = {1, 2}, .positions = {7, 9}}};
  const auto tokens = ExpandTokens(group, {4, 24, 4, 24}, kCopy, "group");
  ASSERT_THAT(tokens, IsOk());
  EXPECT_THAT(tokens->from_slots, ElementsAre(22, 23, 4, 5, 0, 1));
  EXPECT_THAT(tokens->to_slots, ElementsAre(22, 23, 4, 5, 8, 9));
  EXPECT_THAT(tokens->to_positions, ElementsAre(3, 4, 5, 6, 7, 9));
}

TEST(MoveTokensTest, SlotsMayHaveSeveralAxes) {
  const KeyGroup group = {.slots = {.slots = {3, 2},
                                    .from_positions = {0, 1, 2, 3, 4, 5},
                                    .positions = {0, 0, 0, 1, 1, 1}}};
  const auto tokens = ExpandTokens(group, {4, 24, 4, 24}, MoveMode::kMove, "group");
  ASSERT_THAT(tokens, IsOk());
  EXPECT_EQ(tokens->axes, 3);
  EXPECT_EQ(tokens->count(), 2);
}

template <typename Change>
void ExpectRefused(MoveMode mode, const std::string& message, Change change) {
  KeyGroup group = {.runs = {ARun()}};
  change(group);
  EXPECT_THAT(ExpandTokens(group, {4, 24, 4, 24}, mode, "group"),
              StatusIs(kInvalid, HasSubstr(message)))
      << message;
}

TEST(MoveTokensTest, WrongTokensAreRefusedWithTheirField) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ExpectRefused(kCopy, "group.runs[0].count: -1", [](auto& g) { g.runs[0].count = -1; });
  ExpectRefused(kCopy, "group.runs[0].count: ", [](auto& g) { g.runs[0].count = kMost; });
  ExpectRefused(kCopy, "group.runs[0].first: places", [](auto& g) { g.runs[0].count = 7; });
  ExpectRefused(kCopy, "group.runs[0].first: places", [](auto& g) { g.runs[0].first = -1; });
  ExpectRefused(kCopy, "group.runs[0].first: places", [](auto& g) { g.runs[0].first = kMost; });
  ExpectRefused(kCopy, "group.runs[0].block_table[1]: page 6; must be in [0, 6)",
                [](auto& g) { g.runs[0].block_table[1] = 6; });
  ExpectRefused(kCopy, "group.runs[0].to: ", [](auto& g) { g.runs[0].to = kMost - 2; });
  ExpectRefused(kCopy, "group.runs[0].to_first: places", [](auto& g) { g.runs[0].to_first = 5; });
  ExpectRefused(MoveMode::kMove, "group.runs[0].to_block_table: set for MOVE", [](auto& g) {
    g.runs[0].to_block_table = {0, 2};
  });
  ExpectRefused(kCopy, "two tokens go to slot ", [](auto& g) { g.runs.push_back(ARun()); });
  const auto slots = [](auto change) {
    return [change](KeyGroup& g) {
      g.runs.clear();
      g.slots = {.slots = {1, 2}, .from_positions = {1, 2}, .positions = {1, 2}};
      change(g.slots);
    };
  };
  ExpectRefused(kCopy, "group.slots.slots[1]: slot 24; must be in [0, 24)",
                slots([](KeySlots& s) { s.slots[1] = 24; }));
  ExpectRefused(kCopy, "group.slots.positions: 3 numbers", slots([](KeySlots& s) {
                  s.positions = {1, 2, 3};
                }));
  ExpectRefused(kCopy, "group.slots.from_positions: 1 numbers",
                slots([](KeySlots& s) { s.from_positions = {1}; }));
  ExpectRefused(kCopy, "group.slots.to_slots: 1 slots",
                slots([](KeySlots& s) { s.to_slots = {1}; }));
  ExpectRefused(MoveMode::kMove, "group.slots.to_slots: set for MOVE", slots([](KeySlots& s) {
                  s.to_slots = {4, 5};
                }));
  ExpectRefused(kCopy, "group.slots.positions: set without slots",
                slots([](KeySlots& s) { s.slots.clear(); }));
}

TEST(MoveTokensTest, OneSlotMayBeComparedTwice) {
  KeyGroup group = {.runs = {ARun(), ARun()}};
  EXPECT_THAT(ExpandTokens(group, {4, 24, 4, 24}, MoveMode::kCompare, "group"), IsOk());
}

}  // namespace
}  // namespace phasor
