// SPDX-License-Identifier: Apache-2.0
// Every enumerator has a name of its own.
#include "kernels/spec/names.h"

#include <gtest/gtest.h>

#include <set>

namespace phasor {
namespace {

// Checks that the names of enumerators 0..last are known and differ.
template <typename E>
void ExpectNamed(E last) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    EXPECT_NE(Name(static_cast<E>(i)), "?") << i;
    names.insert(Name(static_cast<E>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(last) + 1);
  EXPECT_EQ(Name(static_cast<E>(static_cast<int>(last) + 1)), "?");
}

TEST(SpecNamesTest, EveryEnumeratorHasItsOwnName) {
  ExpectNamed(SpecKind::kRotary);
  ExpectNamed(FrequencyFamily::kLogRange);
  ExpectNamed(FrequencyUnit::kTurns);
  ExpectNamed(TrigOrder::kCosOnly);
  ExpectNamed(Arrangement::kConcatenated);
  ExpectNamed(AxisGrouping::kSum);
  ExpectNamed(AxisRule::kDense);
  ExpectNamed(Pairing::kBlockHalfSplit);
  ExpectNamed(OddDim::kSplit);
  ExpectNamed(Precision::kParity);
}

TEST(SpecNamesTest, CountsTheEnumerators) {
  EXPECT_EQ(EnumeratorCount<SpecKind>(), 2);
  EXPECT_EQ(EnumeratorCount<TrigOrder>(), 3);
}

}  // namespace
}  // namespace phasor
