// SPDX-License-Identifier: Apache-2.0
// The sizes of tensors, and the shapes and strides that are refused.
#include "kernels/tensor/tensor_desc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::StatusIs;

using ::phasor::testing::kInvalid;
constexpr int64_t kLongest = std::numeric_limits<int64_t>::max();

TensorDesc Desc(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  return {Dtype::kFloat32, std::move(shape), std::move(strides)};
}

TEST(DenseBytesTest, MultipliesExtentsAndElementSize) {
  EXPECT_EQ(*DenseBytes(Desc({3, 5, 7}), "t"), 3 * 5 * 7 * 4);
  EXPECT_EQ(*DenseBytes({Dtype::kBFloat16, {9}, {}}, "t"), 18);
  EXPECT_EQ(*DenseBytes(Desc({}), "t"), 4);
  EXPECT_EQ(*DenseBytes(Desc({int64_t{1} << 40, 0, int64_t{1} << 40}), "t"), 0);
}

TEST(DenseBytesTest, RefusesWhatOverflows) {
  EXPECT_THAT(DenseBytes(Desc({int64_t{1} << 40, int64_t{1} << 21}), "t"),
              StatusIs(kInvalid, StartsWith("t: shape times")));
  EXPECT_THAT(DenseBytes(Desc({int64_t{1} << 40, int64_t{1} << 40, int64_t{1} << 40}), "t"),
              StatusIs(kInvalid, HasSubstr("2^62")));
  EXPECT_THAT(DenseBytes(Desc({kLongest, 2}), "t"), StatusIs(kInvalid, StartsWith("t.shape[0]")));
  EXPECT_THAT(DenseBytes(Desc({4, -1}), "t"),
              StatusIs(kInvalid, StartsWith("t.shape[1]: -1 is out of range")));
  EXPECT_EQ(*DenseBytes(Desc({int64_t{1} << 40, int64_t{1} << 20}), "t"), int64_t{1} << 62);
}

TEST(SpannedBytesTest, CountsFromTheFirstToTheLastElement) {
  EXPECT_EQ(*SpannedBytes(Desc({3, 4}, {10, 1}), "t"), (2 * 10 + 4) * 4);
  EXPECT_EQ(*SpannedBytes(Desc({3, 4}, {4, 1}), "t"), 48);
  EXPECT_EQ(*SpannedBytes(Desc({3, 4}), "t"), 48);
  EXPECT_EQ(*SpannedBytes(Desc({0, 4}, {kLongest, 1}), "t"), 0);
}

TEST(IsDenseTest, LooksAtTheOrderNotAtTheSizeAlone) {
  EXPECT_TRUE(IsDense(Desc({3, 4})));
  EXPECT_TRUE(IsDense(Desc({3, 4}, {4, 1})));
  EXPECT_TRUE(IsDense(Desc({1, 4}, {77, 1})));
  EXPECT_FALSE(IsDense(Desc({3, 4}, {5, 1})));
  EXPECT_FALSE(IsDense(Desc({2, 3, 4}, {4, 8, 1})));
}

TEST(SpannedBytesTest, AllowsPermutedDimensions) {
  EXPECT_EQ(*SpannedBytes(Desc({2, 3, 4}, {4, 8, 1}), "t"), 2 * 3 * 4 * 4);
}

TEST(SpannedBytesTest, IgnoresTheStrideOfASingleElement) {
  EXPECT_EQ(*SpannedBytes(Desc({1, 4}, {0, 1}), "t"), 16);
  EXPECT_EQ(*SpannedBytes(Desc({1, 4}, {kLongest, 1}), "t"), 16);
}

TEST(SpannedBytesTest, RefusesStridesThatOverlapOrAreNegative) {
  EXPECT_THAT(
      SpannedBytes(Desc({3, 4}, {3, 1}), "t"),
      StatusIs(kInvalid, StartsWith("t.strides[0]: 3 makes elements overlap; must be at least 4")));
  EXPECT_THAT(SpannedBytes(Desc({3, 4}, {0, 1}), "t"), StatusIs(kInvalid, HasSubstr("overlap")));
  EXPECT_THAT(SpannedBytes(Desc({2, 3, 4}, {4, 4, 1}), "t"),
              StatusIs(kInvalid, HasSubstr("overlap")));
  EXPECT_THAT(SpannedBytes(Desc({3, 4}, {-4, 1}), "t"),
              StatusIs(kInvalid, StartsWith("t.strides[0]: -4 is negative")));
  EXPECT_THAT(SpannedBytes(Desc({3, 4}, {8, 2}), "t"),
              StatusIs(kInvalid, StartsWith("t.strides[1]: 2; the last must be 1")));
  EXPECT_THAT(SpannedBytes(Desc({3, 4}, {4}), "t"),
              StatusIs(kInvalid, StartsWith("t.strides: 1 entries")));
}

TEST(SpannedBytesTest, RefusesSpansThatOverflow) {
  EXPECT_THAT(SpannedBytes(Desc({3, 4}, {kLongest, 1}), "t"),
              StatusIs(kInvalid, HasSubstr("2^62")));
  EXPECT_THAT(SpannedBytes(Desc({2, 4}, {int64_t{1} << 60, 1}), "t"),
              StatusIs(kInvalid, HasSubstr("2^62")));
}

}  // namespace
}  // namespace phasor
