// SPDX-License-Identifier: Apache-2.0
// Division by multiplication and shift is exact.
#include "kernels/cuda/divisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace phasor::cuda {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

// Numbers around every power of two, and the two ends.
std::vector<int64_t> Edges() {
  std::vector<int64_t> edges = {1, kLargest - 1, kLargest};
  for (int bit = 1; bit < 63; ++bit) {
    for (const int64_t near : {-1, 0, 1}) edges.push_back((int64_t{1} << bit) + near);
  }
  return edges;
}

TEST(DivisorTest, DividesNumbersAroundPowersOfTwoExactly) {
  for (const int64_t d : Edges()) {
    const Divisor divisor = MakeDivisor(d);
    ASSERT_EQ(Quotient(0, divisor), 0) << d;
    for (const int64_t n : Edges()) ASSERT_EQ(Quotient(n, divisor), n / d) << n << " / " << d;
  }
}

TEST(DivisorTest, DividesAroundMultiplesExactly) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100000; ++i) {
    const int64_t d = static_cast<int64_t>(random() >> (1 + random() % 62)) + 1;
    const Divisor divisor = MakeDivisor(d);
    const int64_t multiple = std::max<int64_t>(static_cast<int64_t>(random() >> 2) / d * d, 1);
    for (const int64_t n : {multiple - 1, multiple, multiple + 1}) {
      ASSERT_EQ(Quotient(n, divisor), n / d) << n << " / " << d;
    }
  }
}

TEST(SmallDivisorTest, DividesNumbersBelowTwoToThe31Exactly) {
  std::mt19937 random(5);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (int i = 0; i < 100000; ++i) {
    const auto d = static_cast<int32_t>(random() >> (1 + random() % 31)) | 1;
    for (const int32_t value : {d, d + (d < kMost ? 1 : 0)}) {
      const SmallDivisor divisor = MakeSmallDivisor(value);
      ASSERT_EQ(divisor.value, value);
      const int32_t multiple = static_cast<int32_t>(random() >> 1) / value * value;
      for (const int32_t n : {0, multiple, std::max(multiple - 1, 0), kMost - 1, kMost}) {
        ASSERT_EQ(Quotient(n, divisor), n / value) << n << " / " << value;
      }
    }
  }
}

TEST(DivisorTest, RemembersItsValue) { EXPECT_EQ(MakeDivisor(12).value, 12); }

}  // namespace
}  // namespace phasor::cuda
