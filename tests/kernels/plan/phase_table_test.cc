// SPDX-License-Identifier: Apache-2.0
// The place of every pair in the table that SIMD code reads.
#include "kernels/plan/phase_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/reference/scalar.h"

namespace phasor {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

TEST(PhaseTableTest, SplitsPairsIntoEvenAndOdd) {
  const PhaseTable table = MakePhaseTable({{0, 1}, {0, 2}, {3, 4}}, {0, 0, 0}, {0, 0, 9});
  EXPECT_EQ(table.half, 16);
  EXPECT_EQ(table.layers, 1);
  EXPECT_EQ(table.fraction[0], 1u);
  EXPECT_EQ(table.fraction[16], 2u);
  EXPECT_EQ(table.fraction[1], 4u);
  EXPECT_EQ(table.whole[1], 3u);
  EXPECT_TRUE(table.has_whole);
  EXPECT_EQ(table.offset[1], 9u);
  EXPECT_EQ(table.offset[0], 0u);
}

TEST(PhaseTableTest, KeepsNoOffsetsThatAreAllZero) {
  EXPECT_THAT(MakePhaseTable({{0, 1}}, {0}, {0}).offset, SizeIs(0));
}

TEST(PhaseTableTest, GivesEveryLayerItsOwnRuns) {
  const PhaseTable table =
      MakePhaseTable({{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}}, {0, 0, 1, 1, 2, 2}, {0, 0});
  EXPECT_EQ(table.layers, 3);
  ASSERT_THAT(table.runs, SizeIs(3));
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(table.runs[layer].layer, layer);
    EXPECT_EQ(table.runs[layer].axis, layer);
    EXPECT_EQ(table.runs[layer].begin, 0);
    EXPECT_EQ(table.runs[layer].count, table.entries());
    EXPECT_EQ(table.fraction[layer * table.entries() + table.Entry(1)], 2u * layer + 2);
  }
}

TEST(PhaseTableTest, MakesLayersOfAxesThatTakeTurns) {
  constexpr int kPairs = 62;
  const Position at[] = {{5, 0}, {-7, uint64_t{3} << 61}, {1 << 20, 12345}};
  std::vector<Frequency> frequency;
  std::vector<uint8_t> axis;
  std::vector<uint64_t> offset;
  for (uint64_t j = 0; j < kPairs; ++j) {
    frequency.push_back({static_cast<int64_t>(j) - 30, (j + 1) * 0x9e3779b97f4a7c15});
    axis.push_back(static_cast<uint8_t>(j % 3));
    offset.push_back(j << 50);
  }
  const PhaseTable table = MakePhaseTable(frequency, axis, offset);
  EXPECT_EQ(table.layers, 3);
  EXPECT_THAT(table.runs, SizeIs(3));
  for (int64_t j = 0; j < kPairs; ++j) {
    EXPECT_EQ(reference::PairPhase(table, j, at), PhaseOf(at[axis[j]], frequency[j]) + offset[j]);
  }
}

TEST(PhaseTableTest, PadsWithZeros) {
  const PhaseTable table = MakePhaseTable({{0, 7}}, {3}, {0});
  EXPECT_THAT(absl::MakeSpan(table.fraction).subspan(1), Each(0u));
  ASSERT_THAT(table.runs, SizeIs(1));
  EXPECT_EQ(table.runs[0].axis, 3) << "padding joins the run before it";
}

TEST(PhaseTableTest, OfNoPairsIsEmpty) { EXPECT_EQ(MakePhaseTable({}, {}, {}).entries(), 0); }

}  // namespace
}  // namespace phasor
