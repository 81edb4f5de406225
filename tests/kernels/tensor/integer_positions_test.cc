// SPDX-License-Identifier: Apache-2.0
// Which positions are integers, and the interval that they lie in.
#include "kernels/tensor/integer_positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

void ExpectInterval(const Positions& positions, int axes, int axis, int64_t min, int64_t max,
                    const std::vector<int64_t>& data = {}) {
  auto source = MakePositionSource(positions, axes, "p");
  ASSERT_THAT(source, IsOk());
  source->data = reinterpret_cast<const std::byte*>(data.data());
  const Interval interval = IntervalOf(*source, axis);
  EXPECT_EQ(interval.min, min);
  EXPECT_EQ(interval.max, max);
}

TEST(IntegerPositionsTest, IntervalOfARangeTakesNoTimePerPosition) {
  ExpectInterval(AxisRange(IntegerRange{5, 3, int64_t{1} << 40}), 1, 0, 5,
                 5 + 3 * ((int64_t{1} << 40) - 1));
  ExpectInterval(AxisRange(IntegerRange{5, -2, 4}), 1, 0, -1, 5);
  ExpectInterval(AxisRange(IntegerRange{kMin, 0, 7}), 1, 0, kMin, kMin);
}

TEST(IntegerPositionsTest, IntervalOfAGridIsThatOfItsAxis) {
  const PositionGrid grid{{IntegerRange{0, 1, 3}, IntegerRange{10, -1, 5}}};
  ExpectInterval(grid, 2, 0, 0, 2);
  ExpectInterval(grid, 2, 1, 6, 10);
}

TEST(IntegerPositionsTest, IntervalOfSequencesIgnoresEmptyOnes) {
  ExpectInterval(RaggedPositions{{0, 3, 0, 2}, {-50, 7, 99, 2}}, 1, 0, 2, 9);
}

TEST(IntegerPositionsTest, IntervalOfATensorLooksAtEveryNumberOfTheAxis) {
  std::vector<int64_t> numbers(2 * 600, 0);
  numbers[2 * 599] = kMax;
  numbers[2 * 300] = kMin;
  numbers[2 * 300 + 1] = -4;
  const PositionTensor tensor{Dtype::kInt64, {600, 2}};
  ExpectInterval(tensor, 2, 0, kMin, kMax, numbers);
  ExpectInterval(tensor, 2, 1, -4, 0, numbers);
}

TEST(IntegerPositionsTest, RealPositionsAreRefusedWhereTheyStand) {
  const auto refused = [](const Positions& positions, const std::string& message) {
    EXPECT_THAT(CheckIntegerPositions(positions, "p"),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  refused(AxisRange(RealRange{0, 1, 2}), "p.range: real positions; must be integers");
  refused(PositionGrid{{IntegerRange{0, 1, 2}, RealRange{0, 1, 2}}},
          "p.grid.axes[1]: real positions; must be integers");
  refused(PositionTensor{Dtype::kFloat32, {3}}, "p.tensor.dtype: FLOAT32; must be integers");
  EXPECT_THAT(CheckIntegerPositions(PositionTensor{Dtype::kInt32, {3}}, "p"), IsOk());
  EXPECT_THAT(CheckIntegerPositions(RaggedPositions{{1}, {}}, "p"), IsOk());
}

}  // namespace
}  // namespace phasor
