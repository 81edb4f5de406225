// SPDX-License-Identifier: Apache-2.0
// Edit distances between names, and suggestions for wrong names.
#include "kernels/base/nearest_name.h"

#include <gtest/gtest.h>

namespace phasor {
namespace {

TEST(NearestNameTest, DistanceCountsInsertedRemovedAndReplacedCharacters) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("threads", "threads"), 0u);
  EXPECT_EQ(EditDistance("treads", "threads"), 1u);
  EXPECT_EQ(EditDistance("threads", "treads"), 1u);
  EXPECT_EQ(EditDistance("thread5", "threads"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
}

TEST(NearestNameTest, FewestEditsWinAndTheFirstOfEqualOnes) {
  EXPECT_EQ(NearestName("llama2", {"gpt-j", "llama-3", "llama-2"}), "llama-2");
  EXPECT_EQ(NearestName("ab", {"aa", "bb"}), "aa");
}

TEST(NearestNameTest, NamesOfAnyLengthAreCompared) {
  EXPECT_EQ(NearestName("abc", {"abcdefgh", "x", "abcd"}), "abcd");
  EXPECT_EQ(NearestName("", {"abc", "a", "b"}), "a");
}

TEST(NearestNameTest, NoNamesNoSuggestion) { EXPECT_EQ(NearestName("x", {}), ""); }

}  // namespace
}  // namespace phasor
