// SPDX-License-Identifier: Apache-2.0
// The layouts of rotary tables as pictures of every column, in the notation of docs/conventions.md.
#include "kernels/plan/row_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/draw.h"

namespace phasor {
namespace {

using testing::Draw;
using ::testing::ElementsAre;

std::string DrawTable(EncodeOutput output, int64_t pairs) {
  return Draw(TableLayout(output, {1, pairs, pairs}));
}

TEST(TableLayoutTest, IsWhatTheCatalogueDraws) {
  EXPECT_EQ(DrawTable(EncodeOutput::kCosSin, 2), "c0 c1 s0 s1");
  EXPECT_EQ(DrawTable(EncodeOutput::kCosSinDuplicated, 2), "c0 c1 c0 c1 s0 s1 s0 s1");
  EXPECT_EQ(DrawTable(EncodeOutput::kCosSinRepeated, 2), "c0 c0 c1 c1 s0 s0 s1 s1");
  EXPECT_EQ(DrawTable(EncodeOutput::kSinCos, 2), "s0 s1 c0 c1");
  EXPECT_EQ(DrawTable(EncodeOutput::kSinCosDuplicated, 2), "s0 s1 s0 s1 c0 c1 c0 c1");
  EXPECT_EQ(DrawTable(EncodeOutput::kSinCosRepeated, 2), "s0 s0 s1 s1 c0 c0 c1 c1");
  EXPECT_EQ(DrawTable(EncodeOutput::kComplex, 2), "c0 s0 c1 s1");
  EXPECT_EQ(DrawTable(EncodeOutput::kMatrix2x2, 2), "c0 -s0 s0 c0 c1 -s1 s1 c1");
  EXPECT_EQ(DrawTable(EncodeOutput::kCos, 2), "c0 c1");
  EXPECT_EQ(DrawTable(EncodeOutput::kCosDuplicated, 2), "c0 c1 c0 c1");
  EXPECT_EQ(DrawTable(EncodeOutput::kCosRepeated, 2), "c0 c0 c1 c1");
  EXPECT_EQ(DrawTable(EncodeOutput::kSin, 2), "s0 s1");
  EXPECT_EQ(DrawTable(EncodeOutput::kSinDuplicated, 2), "s0 s1 s0 s1");
  EXPECT_EQ(DrawTable(EncodeOutput::kSinRepeated, 2), "s0 s0 s1 s1");
}

TEST(TableLayoutTest, RepeatsPairsInBlocksBlockByBlock) {
  const TablePairs blocks{1, 3, 3, {2, 1}};
  EXPECT_EQ(Draw(TableLayout(EncodeOutput::kCosSinDuplicated, blocks)),
            "c0 c1 c0 c1 c2 c2 s0 s1 s0 s1 s2 s2");
  EXPECT_EQ(Draw(TableLayout(EncodeOutput::kSinDuplicated, blocks)), "s0 s1 s0 s1 s2 s2");
  EXPECT_EQ(Draw(TableLayout(EncodeOutput::kCosSin, blocks)), "c0 c1 c2 s0 s1 s2");
}

TEST(TableLayoutTest, PutsHeadsOneAfterAnother) {
  EXPECT_EQ(Draw(TableLayout(EncodeOutput::kComplex, {2, 3, 4})),
            "c0 s0 c1 s1 c2 s2 c4 s4 c5 s5 c6 s6");
  EXPECT_EQ(Draw(TableLayout(EncodeOutput::kCosSin, {2, 2, 2})), "c0 c1 s0 s1 c2 c3 s2 s3");
}

TEST(TableShapeTest, NamesComponentsHeadsAndMatrices) {
  const TablePairs one{1, 5, 5}, heads{3, 5, 6};
  EXPECT_THAT(TableShape(EncodeOutput::kCosSin, one), ElementsAre(2, 5));
  EXPECT_THAT(TableShape(EncodeOutput::kSinCosRepeated, one), ElementsAre(2, 10));
  EXPECT_THAT(TableShape(EncodeOutput::kSinDuplicated, one), ElementsAre(10));
  EXPECT_THAT(TableShape(EncodeOutput::kComplex, heads), ElementsAre(3, 5, 2));
  EXPECT_THAT(TableShape(EncodeOutput::kMatrix2x2, one), ElementsAre(5, 2, 2));
}

TEST(TableShapeTest, HoldsAsManyNumbersAsTheRow) {
  for (int i = 1; i <= static_cast<int>(EncodeOutput::kSinRepeated); ++i) {
    const auto output = static_cast<EncodeOutput>(i);
    const TablePairs pairs{3, 5, 6};
    int64_t numbers = 1;
    for (const int64_t extent : TableShape(output, pairs)) numbers *= extent;
    EXPECT_EQ(numbers, TableLayout(output, pairs).width) << i;
  }
}

}  // namespace
}  // namespace phasor
