// SPDX-License-Identifier: Apache-2.0
// Row layouts compiled into steps: every column once, sums in order, zeros last.
#include "kernels/cuda/row_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phasor::cuda {
namespace {

using ::testing::ElementsAre;
using What = RowStep::What;

TEST(RowProgramTest, PairsAreUnitsAndZerosFollow) {
  RowLayout layout;
  layout.width = 7;
  layout.content_begin = 2;
  layout.content_end = 6;
  layout.blocks = {{0, 2, 2, 3, 2, false, true}};  // interleaved, sines negated
  const RowProgram program = CompileRow(layout);
  EXPECT_THAT(program.unit_begin, ElementsAre(0, 2, 4, 7));
  EXPECT_THAT(program.steps, ElementsAre(RowStep{2, 0, What::kMinusSin}, RowStep{3, 0, What::kCos},
                                         RowStep{4, 1, What::kMinusSin}, RowStep{5, 1, What::kCos},
                                         RowStep{0, 0, What::kZero}, RowStep{1, 0, What::kZero},
                                         RowStep{6, 0, What::kZero}));
}

TEST(RowProgramTest, SumsKeepTheOrderOfTheirBlocks) {
  RowLayout layout;
  layout.width = layout.content_end = 2;
  layout.blocks = {{4, 1, 0, 1, 1, false, false}, {8, 1, 0, 1, 1, true, false}};
  const RowProgram program = CompileRow(layout);
  EXPECT_EQ(program.units(), 1);
  EXPECT_THAT(
      program.steps,
      ElementsAre(RowStep{0, 4, What::kSin, true, false}, RowStep{0, 8, What::kSin, false, true},
                  RowStep{1, 4, What::kCos, true, false}, RowStep{1, 8, What::kCos, false, true}));
}

TEST(RowProgramTest, EveryColumnOfEveryTableIsWrittenOnce) {
  for (int output = 1; output <= static_cast<int>(EncodeOutput::kSinRepeated); ++output) {
    const RowLayout layout = TableLayout(static_cast<EncodeOutput>(output), {3, 5, 6});
    const RowProgram program = CompileRow(layout);
    std::vector<int> written(static_cast<size_t>(layout.width));
    for (const RowStep& step : program.steps) ++written[static_cast<size_t>(step.column)];
    EXPECT_THAT(written, ::testing::Each(1)) << output;
    EXPECT_EQ(program.units(), 15) << "one per pair";
  }
}

TEST(RowProgramTest, EmptyRowsHaveNoUnits) { EXPECT_EQ(CompileRow(RowLayout{}).units(), 0); }

}  // namespace
}  // namespace phasor::cuda
