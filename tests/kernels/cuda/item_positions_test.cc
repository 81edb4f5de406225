// SPDX-License-Identifier: Apache-2.0
// What a kernel reads of a slice's positions is what the source holds, for every kind of source.
#include "kernels/cuda/item_positions.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace phasor::cuda {
namespace {

struct Case {
  std::string name;
  Positions positions;
  int axes = 1;
  bool whole = true;
  bool simple = false;
};

std::vector<Case> Cases() {
  return {
      {"range", AxisRange{IntegerRange{-7, 3, 6}}, 1, true, true},
      {"fractions", AxisRange{RealRange{0.5, 1, 6}}, 1, false},
      {"fractions of steps", AxisRange{RealRange{0, 0.25, 6}}, 1, false},
      {"ragged", RaggedPositions{.lengths = {2, 0, 4}, .offsets = {100, 5, -3}}, 1, true},
      {"grid", PositionGrid{{IntegerRange{5, 1, 2}, IntegerRange{-1, 4, 3}}}, 2, true},
      {"grid with fractions", PositionGrid{{IntegerRange{5, 1, 2}, RealRange{0, 0.5, 3}}}, 2,
       false},
      {"tensor", PositionTensor{Dtype::kInt64, {6}}, 1, true, true},
      {"tensor of 32 bits", PositionTensor{Dtype::kInt32, {6}}, 1, true, true},
      {"tensor with axes", PositionTensor{Dtype::kInt64, {6, 3}}, 3, true},
      {"tensor of numbers", PositionTensor{Dtype::kFloat32, {6}}, 1, false},
  };
}

// 6 positions, whose numbers, if they are a tensor, are in `numbers`.
PositionSource SourceOf(const Case& c, const std::vector<std::byte>& numbers) {
  PositionSource source = *MakePositionSource(c.positions, c.axes, "positions");
  source.data = numbers.data();
  return source;
}

std::vector<std::byte> Numbers() {
  std::vector<std::byte> numbers(6 * 3 * sizeof(int64_t));
  for (size_t i = 0; i < numbers.size(); i += 4) numbers[i] = std::byte(i + 1);
  return numbers;
}

TEST(ItemPositionsTest, KnowsWholeAndSimpleSources) {
  const std::vector<std::byte> numbers = Numbers();
  for (const Case& c : Cases()) {
    EXPECT_EQ(AreWhole(SourceOf(c, numbers)), c.whole) << c.name;
    EXPECT_EQ(AreSimple(SourceOf(c, numbers)), c.simple) << c.name;
  }
}

TEST(ItemPositionsTest, KernelsReadTheSlicesPositionsAgainAndAgain) {
  const std::vector<std::byte> numbers = Numbers();
  constexpr int64_t kFirst = 1, kCount = 4;
  for (const Case& c : Cases()) {
    const PositionSource source = SourceOf(c, numbers);
    std::vector<Position> want(static_cast<size_t>(kCount * c.axes));
    ReadPositions(source, kFirst, kCount, want.data());
    Arena count;
    MakePositions(source, {kFirst, kCount}, count);
    std::vector<std::max_align_t> memory(
        static_cast<size_t>(count.used()) / sizeof(std::max_align_t) + 1);
    auto* const base = reinterpret_cast<std::byte*>(memory.data());
    Arena arena(base, count.used());
    const ItemPositions positions = MakePositions(source, {kFirst, kCount}, arena);
    for (int64_t row = 0; row < 2 * kCount; ++row) {
      for (int axis = 0; axis < c.axes; ++axis) {
        const Position expected = want[static_cast<size_t>(row % kCount * c.axes + axis)];
        EXPECT_EQ(PositionOf(positions, base, row, axis), expected) << c.name << " " << row;
        if (c.simple) {
          EXPECT_EQ(WholePosition(positions, base, row), expected.whole) << c.name << " " << row;
        } else if (c.whole) {
          EXPECT_EQ(WholeOnAxis(positions, base, row, axis), expected.whole)
              << c.name << " " << row;
        }
      }
    }
  }
}

// Batch entries that share positions share a part of them if the slice begins in the middle.
TEST(ItemPositionsTest, EntriesOfABatchShareThePositionsOfTheirTokens) {
  const PositionSource source =
      *MakePositionSource(AxisRange{IntegerRange{10, 1, 6}}, 1, "positions");
  RotaryJob job;
  job.batch = 2;
  job.tokens = 6;
  Arena arena;
  const ItemPositions part = MakeTokenPositions(job, source, {8, 3}, arena);
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_EQ(WholePosition(part, nullptr, row), 12 + row);
  }
  const ItemPositions all = MakeTokenPositions(job, source, {0, 12}, arena);
  for (int64_t row = 0; row < 12; ++row) {
    EXPECT_EQ(WholePosition(all, nullptr, row), 10 + row % 6);
  }
}

}  // namespace
}  // namespace phasor::cuda
