// SPDX-License-Identifier: Apache-2.0
// Tests that the bytes of tables count against one budget, and are returned.
#include "server/tables/table_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace phasor::tables {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kExhausted;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

TEST(TableMemoryTest, BytesCountWhenTakenAndCountBackWhenTheyGo) {
  const auto budget = std::make_shared<Budget>(100);
  {
    auto block = TableBlock::Allocate(budget, 60);
    ASSERT_THAT(block, IsOk());
    EXPECT_EQ(budget->taken_bytes, 0);
    EXPECT_THAT(block->Take(60), IsOk());
    EXPECT_EQ(budget->taken_bytes, 60);
    const TableBlock moved = *std::move(block);
    EXPECT_EQ(budget->taken_bytes, 60);
  }
  EXPECT_EQ(budget->taken_bytes, 0);
}

TEST(TableMemoryTest, TheBudgetIsSharedAndARefusalTakesNothing) {
  const auto budget = std::make_shared<Budget>(100);
  auto first = TableBlock::Allocate(budget, 80), second = TableBlock::Allocate(budget, 80);
  EXPECT_THAT(first->Take(80), IsOk());
  EXPECT_THAT(second->Take(21), StatusIs(kExhausted, HasSubstr("--max-tables-bytes")));
  EXPECT_EQ(budget->taken_bytes, 80);
  EXPECT_THAT(second->Take(20), IsOk());
}

TEST(TableMemoryTest, MoreThanTheWholeBudgetIsNotEvenAllocated) {
  EXPECT_THAT(TableBlock::Allocate(std::make_shared<Budget>(100), 101),
              StatusIs(kExhausted, HasSubstr("101 bytes")));
}

}  // namespace
}  // namespace phasor::tables
