// SPDX-License-Identifier: Apache-2.0
// Rows of tensors: their runs of memory, and copies to and from dense memory.
#include "kernels/cuda/host_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace phasor::cuda {
namespace {

using ::testing::ElementsAre;

std::vector<std::byte> Counting(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

std::vector<int> Gathered(const HostRows& rows, Slice slice) {
  std::vector<std::byte> dense(static_cast<size_t>(slice.count * rows.row_bytes()));
  Gather(rows, slice, dense.data());
  std::vector<int> values;
  for (const std::byte b : dense) values.push_back(static_cast<int>(b));
  return values;
}

TEST(HostRowsTest, DenseRowsAreOneRun) {
  auto memory = Counting(12);
  EXPECT_THAT(Gathered({memory.data(), 4, 12, 3, 3, 1, 1}, {1, 2}), ElementsAre(3, 4, 5, 6, 7, 8));
}

TEST(HostRowsTest, HeadsAndRowsMayBeApart) {
  auto memory = Counting(40);  // rows 10 apart, heads 4 apart, two bytes of each
  EXPECT_THAT(Gathered({memory.data() + 1, 4, 0, 10, 2, 4, 2}, {1, 2}),
              ElementsAre(11, 12, 15, 16, 21, 22, 25, 26));
}

TEST(HostRowsTest, HeadsMayLieBeforeRows) {
  auto memory = Counting(12);  // [2 heads, 3 rows, 2 bytes]
  EXPECT_THAT(Gathered({memory.data(), 3, 12, 2, 2, 6, 2}, {1, 2}),
              ElementsAre(2, 3, 8, 9, 4, 5, 10, 11));
}

TEST(HostRowsTest, SlicesRunThroughBatchEntries) {
  auto memory = Counting(30);  // batch entries of 2 rows, 10 bytes apart
  EXPECT_THAT(Gathered({memory.data(), 2, 10, 3, 1, 3, 3}, {1, 3}),
              ElementsAre(3, 4, 5, 10, 11, 12, 13, 14, 15));
}

TEST(HostRowsTest, ScatterPutsBackWhatGatherTook) {
  auto memory = Counting(64);
  const auto before = memory;
  for (const HostRows& rows : {HostRows{memory.data(), 5, 30, 6, 2, 3, 3},
                               HostRows{memory.data() + 3, 2, 20, 8, 2, 4, 2}}) {
    std::vector<std::byte> dense(static_cast<size_t>(4 * rows.row_bytes()));
    Gather(rows, {0, 4}, dense.data());
    for (std::byte& b : dense) b = ~b;
    Scatter(dense.data(), {0, 4}, rows);
    EXPECT_NE(memory, before);
    for (std::byte& b : dense) b = ~b;
    Scatter(dense.data(), {0, 4}, rows);
    EXPECT_EQ(memory, before) << "and nothing else was touched";
  }
}

TEST(HostRowsTest, RowsWithOffsetsGoThereOrNowhere) {
  const int64_t offsets[] = {8, -1, 0, 4};
  std::vector<std::byte> to(14);
  HostRows rows{to.data() + 1, 4, 0, 4, 2, 2, 2};
  rows.offsets = offsets;
  const auto from = Counting(16);
  Scatter(from.data() + 4, {1, 3}, rows);  // rows of four: 4, 8, 12
  const auto values = [&] {
    std::vector<int> all;
    for (const std::byte b : to) all.push_back(static_cast<int>(b));
    return all;
  };
  EXPECT_THAT(values(), ElementsAre(0, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0));
  auto dense = Counting(16);
  rows.head_stride = 3;  // heads are not contiguous
  to.assign(14, std::byte{0});
  CopyRows({dense.data(), 4, 0, 4, 2, 2, 2}, {0, 2}, rows);
  EXPECT_THAT(values(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 3));
}

TEST(HostRowsTest, CopyRowsGoesFromOneLayoutToAnother) {
  auto from = Counting(12);
  std::vector<std::byte> to(12);
  CopyRows({from.data(), 3, 0, 4, 2, 2, 2}, {1, 2}, {to.data(), 3, 0, 2, 2, 6, 2});
  std::vector<int> values;
  for (const std::byte b : to) values.push_back(static_cast<int>(b));
  EXPECT_THAT(values, ElementsAre(0, 0, 4, 5, 8, 9, 0, 0, 6, 7, 10, 11));
}

}  // namespace
}  // namespace phasor::cuda
