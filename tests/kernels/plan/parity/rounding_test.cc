// SPDX-License-Identifier: Apache-2.0
// Rounding to a type, and operations in double that equal those of f32.
#include "kernels/plan/parity/rounding.h"

#include <gtest/gtest.h>

#include <random>

namespace phasor::parity {
namespace {

TEST(RoundingTest, TiesGoToEven) {
  EXPECT_EQ(Round(Dtype::kFloat32, 1 + 0x1p-24), 1);
  EXPECT_EQ(Round(Dtype::kFloat32, 1 + 3 * 0x1p-24), 1 + 0x1p-22);
  EXPECT_EQ(Round(Dtype::kBFloat16, 257), 256);
  EXPECT_EQ(Round(Dtype::kBFloat16, 259), 260);
  EXPECT_EQ(Round(Dtype::kFloat16, 2049), 2048);
  EXPECT_EQ(Round(Dtype::kFloat64, 1 + 0x1p-52), 1 + 0x1p-52);
}

// Compares with the machine's f32 operations.
TEST(RoundingTest, RoundedOperationsInDoubleAreThoseOfF32) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const float a = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 60) - 60);
    const float b =
        std::ldexp(static_cast<float>(random() | 1), static_cast<int>(random() % 60) - 60);
    const double x = a;
    const double y = b;
    EXPECT_EQ(Round(Dtype::kFloat32, x * y), static_cast<double>(a * b));
    EXPECT_EQ(Round(Dtype::kFloat32, x - y), static_cast<double>(a - b));
    EXPECT_EQ(Round(Dtype::kFloat32, x / y), static_cast<double>(a / b));
  }
}

}  // namespace
}  // namespace phasor::parity
