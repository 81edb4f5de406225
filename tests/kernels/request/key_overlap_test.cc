// SPDX-License-Identifier: Apache-2.0
// Interval arithmetic on the rows of a cache, against sets of bytes.
#include "kernels/request/key_overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "kernels/base/bounded.h"

namespace phasor {
namespace {

// All bytes, one by one; empty if two repetitions share one.
std::set<int64_t> BytesOf(const KeyBytes& bytes, bool* overlap) {
  std::vector<int64_t> starts = {bytes.begin};
  for (const KeyBytes::Step& step : bytes.steps) {
    std::vector<int64_t> next;
    for (const int64_t start : starts) {
      for (int64_t i = 0; i < step.count; ++i) next.push_back(start + i * step.distance);
    }
    starts = next;
  }
  std::set<int64_t> all;
  for (const int64_t start : starts) {
    for (int64_t i = 0; i < bytes.bytes; ++i) *overlap |= !all.insert(start + i).second;
  }
  return all;
}

KeyBytes Random(std::mt19937* random) {
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>((*random)() % static_cast<uint64_t>(high - low + 1));
  };
  KeyBytes bytes{draw(0, 40), draw(1, 4), {}};
  int64_t distance = draw(1, 6);
  for (int64_t i = draw(0, 3); i > 0; --i) {
    bytes.steps.insert(bytes.steps.begin(), {distance, draw(2, 4)});
    distance *= draw(1, 5);
  }
  return bytes;
}

TEST(KeyOverlapTest, NestedMeansThatNoByteRepeats) {
  std::mt19937 random(1);
  int nested = 0;
  for (int i = 0; i < 20000; ++i) {
    const KeyBytes bytes = Random(&random);
    bool overlap = false;
    const std::set<int64_t> all = BytesOf(bytes, &overlap);
    EXPECT_EQ(bytes.end(), *all.rbegin() + 1);
    if (!IsNested(bytes)) continue;
    ++nested;
    EXPECT_FALSE(overlap);
  }
  EXPECT_GT(nested, 2000);
}

TEST(KeyOverlapTest, DisjointMeansThatNoByteIsShared) {
  std::mt19937 random(2);
  int disjoint = 0, interleaved = 0;
  for (int i = 0; i < 100000; ++i) {
    const KeyBytes a = Random(&random);
    KeyBytes b = Random(&random);
    if (i % 2 == 0) b = {b.begin, a.bytes, a.steps};  // two layers of one tensor
    if (!IsNested(a) || !IsNested(b) || !AreDisjoint(a, b)) continue;
    bool unused = false;
    const std::set<int64_t> x = BytesOf(a, &unused), y = BytesOf(b, &unused);
    for (const int64_t byte : x) ASSERT_FALSE(y.contains(byte)) << "case " << i;
    ++disjoint;
    interleaved += a.begin < b.end() && b.begin < a.end();
  }
  EXPECT_GT(disjoint, 5000);
  EXPECT_GT(interleaved, 500);
}

// 2^24 * 2^40 has only zeros in its last 64 bits.
TEST(KeyOverlapTest, DistancesThatDoNotFitInto64BitsEndBeyondEveryPool) {
  const KeyBytes bytes{0, 8, {{int64_t{1} << 24, (int64_t{1} << 40) + 1}}};
  EXPECT_EQ(bytes.end(), kUnbounded);
  EXPECT_TRUE(IsNested(bytes));
  const KeyBytes outer{0, 8, {{int64_t{1} << 50, 2}, {int64_t{1} << 24, (int64_t{1} << 40) + 1}}};
  EXPECT_EQ(outer.end(), kUnbounded);
  EXPECT_FALSE(IsNested(outer));
}

TEST(KeyOverlapTest, LayersInsideAPageAreDisjoint) {
  // [pages, layers, slots, heads, lanes]: two layers.
  const KeyBytes a{0, 8, {{96, 4}, {16, 3}, {8, 2}}};
  KeyBytes b = a;
  b.begin = 48;
  EXPECT_TRUE(AreDisjoint(a, b));
  b.begin = 40;
  EXPECT_FALSE(AreDisjoint(a, b));
}

}  // namespace
}  // namespace phasor
