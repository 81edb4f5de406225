// SPDX-License-Identifier: Apache-2.0
// The GPU's form of sine and cosine has the bits of the definition: at random phases, beside every
// boundary of its fields, and at every head and middle.
#include "kernels/cuda/trig.h"

#include <gtest/gtest.h>

#include <random>

namespace phasor::cuda {
namespace {

::testing::AssertionResult IsSame(uint64_t phase) {
  const auto want = SinCos32(phase), got = OffsetSinCos32(phase + kSinCosOffset);
  if (BitsFromFloat(want.sin) == BitsFromFloat(got.sin) &&
      BitsFromFloat(want.cos) == BitsFromFloat(got.cos)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << std::hex << phase << ": " << got.sin << ", " << got.cos;
}

TEST(TrigTest, RandomPhasesHaveTheDefinitionsBits) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2'000'000; ++i) ASSERT_TRUE(IsSame(random()));
}

TEST(TrigTest, SmallRemaindersOfEveryLengthHaveTheDefinitionsBits) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1'000'000; ++i) {
    const uint64_t eighth = random() << 61, remainder = random() >> (i % 64);
    ASSERT_TRUE(IsSame(eighth + remainder));
    ASSERT_TRUE(IsSame(eighth - remainder));
  }
}

TEST(TrigTest, EveryBoundaryOfAFieldHasTheDefinitionsBits) {
  for (uint64_t eighth = 0; eighth < 8; ++eighth) {
    for (int bit = 0; bit < 64; ++bit) {
      for (uint64_t units = 0; units < 130; ++units) {
        for (const uint64_t near : {~uint64_t{0}, uint64_t{0}, uint64_t{1}}) {
          ASSERT_TRUE(IsSame((eighth << 61) + (units << bit) + near));
          ASSERT_TRUE(IsSame((eighth << 61) - (units << bit) + near));
        }
      }
    }
  }
}

TEST(TrigTest, EveryHeadHasTheDefinitionsBits) {
  std::mt19937_64 random(3);
  for (uint64_t head = 0; head < uint64_t{1} << 24; ++head) {
    const uint64_t others = random();
    ASSERT_TRUE(IsSame((head << 38) + (others >> 26) + (others << 62)));
  }
}

}  // namespace
}  // namespace phasor::cuda
