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

TEST(NearestNameTest, ASuggestionIsNear) {
  EXPECT_EQ(DidYouMean("transformr", {"timm-2d", "transformer"}),
            "; did you mean \"transformer\"?");
  EXPECT_EQ(DidYouMean("exact", {"PARITY", "EXACT"}), "; did you mean \"EXACT\"?");
  EXPECT_EQ(DidYouMean("t6", {"alibi", "t5"}), "; did you mean \"t5\"?");
  EXPECT_EQ(DidYouMean("newmodel", {"jetmoe", "gpt-j"}), ";");
  EXPECT_EQ(DidYouMean("enc", {"bench", "encode"}), "; did you mean \"encode\"?");
  EXPECT_EQ(DidYouMean("move", {"rope", "move-keys"}), "; did you mean \"move-keys\"?");
  EXPECT_EQ(DidYouMean("", {"a"}), ";");
  EXPECT_EQ(DidYouMean("a", {"alibi"}), ";");
  EXPECT_EQ(DidYouMean("x", {}), ";");
}

TEST(NearestNameTest, OfALongNameItsBeginningIsCompared) {
  const std::string known(64, 'a');
  EXPECT_EQ(DidYouMean(known + std::string(1 << 20, 'b'), {known}),
            "; did you mean \"" + known + "\"?");
}

TEST(NearestNameTest, NoNamesNoSuggestion) { EXPECT_EQ(NearestName("x", {}), ""); }

}  // namespace
}  // namespace phasor
