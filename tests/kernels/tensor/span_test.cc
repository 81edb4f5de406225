// SPDX-License-Identifier: Apache-2.0
// Tensors that share bytes, and tensors that only lie between each other.
#include "kernels/tensor/span.h"

#include <gtest/gtest.h>

namespace phasor {
namespace {

// A float32 tensor [4, heads, 8] whose tokens are `row` elements apart, at element `first`.
ByteSpan Part(int64_t first, int64_t heads, int64_t row) {
  const int64_t bytes = (3 * row + heads * 8) * 4;
  return SpanOf(Dtype::kFloat32, {4, heads, 8}, {row, 8, 1}, first * 4, bytes);
}
ByteSpan Dense(int64_t first, int64_t count) {
  return SpanOf(Dtype::kFloat32, {count}, {}, first * 4, count * 4);
}

TEST(SpanTest, HasStepsOfDimensionsThatAreLargerThanOne) {
  const ByteSpan span = SpanOf(Dtype::kFloat16, {3, 1, 8}, {16, 999, 1}, 100, 80);
  EXPECT_EQ(span.begin, 100);
  EXPECT_EQ(span.end, 180);
  EXPECT_EQ(span.steps, (std::vector<std::pair<int64_t, int64_t>>{{3, 32}, {8, 2}}));
}

TEST(ApartTest, DenseTensorsThatFollowEachOther) {
  EXPECT_TRUE(Apart(Dense(0, 8), Dense(8, 8)));
  EXPECT_TRUE(Apart(Dense(8, 8), Dense(0, 8)));
  EXPECT_FALSE(Apart(Dense(0, 9), Dense(8, 8)));
  EXPECT_FALSE(Apart(Dense(0, 8), Dense(0, 8)));
}

TEST(ApartTest, PartsOfRows) {
  for (const int64_t row : {24, 32}) {
    const ByteSpan two_heads = Part(0, 2, row);
    EXPECT_TRUE(Apart(two_heads, Part(16, 1, row)));
    EXPECT_TRUE(Apart(Part(16, 1, row), two_heads));
    EXPECT_FALSE(Apart(two_heads, Part(15, 1, row)));
    EXPECT_FALSE(Apart(two_heads, Part(8, 1, row)));
    EXPECT_FALSE(Apart(two_heads, Part(row - 1, 1, row)));  // reaches into the next row
    EXPECT_FALSE(Apart(two_heads, Dense(16, 8)));
  }
}

TEST(ApartTest, EverySecondToken) {
  EXPECT_TRUE(Apart(Part(0, 2, 32), Part(16, 2, 32)));
  EXPECT_FALSE(Apart(Part(0, 2, 32), Part(16, 2, 48)));
}

}  // namespace
}  // namespace phasor
