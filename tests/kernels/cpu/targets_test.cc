// SPDX-License-Identifier: Apache-2.0
// The list of SIMD targets of this machine, and that each has kernels.
#include <gtest/gtest.h>

#include <iostream>

#include "kernels/cpu/kernels.h"

namespace phasor::cpu {
namespace {

TEST(TargetsTest, EndWithTheScalarReference) {
  ASSERT_FALSE(RunnableTargets().empty());
  EXPECT_EQ(RunnableTargets().back(), Target::kScalar);
}

TEST(TargetsTest, HaveKernelsOfTheirOwn) {
  for (Target target : RunnableTargets()) {
    std::cout << "runnable: " << Name(target) << '\n';
    ASSERT_NE(GetEncode(target), nullptr);
    ASSERT_NE(GetRotary(target), nullptr);
    if (target == Target::kScalar) continue;
    EXPECT_NE(GetEncode(target), GetEncode(Target::kScalar));
    EXPECT_NE(GetRotary(target), GetRotary(Target::kScalar));
  }
}

}  // namespace
}  // namespace phasor::cpu
