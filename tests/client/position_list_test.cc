// SPDX-License-Identifier: Apache-2.0
// Tests positions from numbers, containers, tensors, ranges and grids.
#include "client/position_list.h"

#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;

template <typename T>
std::vector<T> Numbers(const PositionList& list) {
  std::vector<T> numbers(list.bytes().size() / sizeof(T));
  std::memcpy(numbers.data(), list.bytes().data(), list.bytes().size());
  return numbers;
}

const PositionTensor& Tensor(const PositionList& list) {
  return std::get<PositionTensor>(list.value());
}

TEST(PositionListTest, WrittenIntegersStayIntegers) {
  const PositionList list = {10, 12, int64_t{1} << 60};
  EXPECT_EQ(Tensor(list).dtype, Dtype::kInt64);
  EXPECT_THAT(Tensor(list).shape, ElementsAre(3));
  EXPECT_THAT(Numbers<int64_t>(list), ElementsAre(10, 12, int64_t{1} << 60));
}

TEST(PositionListTest, OneRealMakesAllReal) {
  const PositionList list = {1, 0.37, -2.5f};
  EXPECT_EQ(Tensor(list).dtype, Dtype::kFloat64);
  EXPECT_THAT(Numbers<double>(list), ElementsAre(1.0, 0.37, -2.5));
}

TEST(PositionListTest, ContainersAreBorrowed) {
  const std::vector<int32_t> values = {3, 1};
  const PositionList list = values;
  EXPECT_EQ(Tensor(list).dtype, Dtype::kInt32);
  EXPECT_EQ(list.bytes().data(), reinterpret_cast<const std::byte*>(values.data()));
}

TEST(PositionListTest, MovedContainersAreOwnedByEveryCopy) {
  PositionList copy;
  {
    const PositionList list = std::vector<float>{0.5f, 4.0f};
    copy = list;
  }
  EXPECT_THAT(Numbers<float>(copy), ElementsAre(0.5f, 4.0f));
}

TEST(PositionListTest, TensorsKeepTheirShape) {
  const std::vector<int64_t> values(12);
  const PositionList list = View(values, {2, 3, 2});
  EXPECT_THAT(Tensor(list).shape, ElementsAre(2, 3, 2));
  EXPECT_FALSE(list.strided());
  EXPECT_TRUE(PositionList(View(values, {2, 3}, {3, 1})).strided());
}

TEST(PositionListTest, RangesAndGridsCarryNoBytes) {
  const PositionList range = IntegerRange{.start = 5, .count = 7};
  EXPECT_EQ(std::get<IntegerRange>(std::get<AxisRange>(range.value())).count, 7);
  EXPECT_TRUE(range.bytes().empty());
  const PositionList grid = PositionGrid{{IntegerRange{.count = 2}, RealRange{.count = 3}}};
  EXPECT_EQ(std::get<PositionGrid>(grid.value()).axes.size(), 2u);
}

TEST(PositionListTest, EmptyBracesAreNoTokens) {
  const PositionList list = {};
  EXPECT_EQ(std::get<IntegerRange>(std::get<AxisRange>(list.value())).count, 0);
}

}  // namespace
}  // namespace phasor
