// SPDX-License-Identifier: Apache-2.0
// Products and sums of sizes, up to those that do not fit into 64 bits.
#include "kernels/base/bounded.h"

#include <gtest/gtest.h>

#include <limits>

namespace phasor {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

TEST(BoundedTest, SizesAreExactBelowTheBound) {
  EXPECT_EQ(BoundedProduct(0, kLargest), 0);
  EXPECT_EQ(BoundedProduct(kLargest, 0), 0);
  EXPECT_EQ(BoundedProduct(int64_t{1} << 30, int64_t{1} << 30), int64_t{1} << 60);
  EXPECT_EQ(BoundedSum(kUnbounded - 5, 4), kUnbounded - 1);
}

TEST(BoundedTest, LargerOnesStickAtTheBound) {
  for (const int64_t a : {int64_t{1} << 31, int64_t{1} << 50, kUnbounded, kLargest}) {
    EXPECT_EQ(BoundedProduct(a, int64_t{1} << 40), kUnbounded) << a;
    EXPECT_EQ(BoundedProduct(int64_t{1} << 40, a), kUnbounded) << a;
  }
  // Their product has only zeros in its last 64 bits.
  EXPECT_EQ(BoundedProduct(int64_t{1} << 32, int64_t{1} << 32), kUnbounded);
  EXPECT_EQ(BoundedSum(kLargest, kLargest), kUnbounded);
  EXPECT_EQ(BoundedSum(kUnbounded, 1), kUnbounded);
}

}  // namespace
}  // namespace phasor
