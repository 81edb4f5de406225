// SPDX-License-Identifier: Apache-2.0
// Parts of named regions as memory of the server's own.
#include "server/memory/region_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::kInvalid;
using ::phasor::testing::SharedMemory;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

class RegionCopiesTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const memory::Region> Open(const SharedMemory& memory, int64_t offset,
                                                    int64_t bytes) {
    return *memory::Region::Open({memory.key(), offset, bytes}, {});
  }
  static std::vector<engine::Item> Items(size_t count) { return std::vector<engine::Item>(count); }
  static bool Failed(const engine::Item& item) { return !item.status.ok(); }

  const SharedMemory memory_{"0123456789"};
  const std::shared_ptr<const memory::Region> region_ = Open(memory_, 1, 9);
  RegionCopies copies_;
};

TEST_F(RegionCopiesTest, WhatWasReadIsComputedHereAndWrittenBack) {
  const std::byte* const in = *copies_.Input(region_, 1, 3, 0, "in");
  std::byte* const out = *copies_.Output(region_, 5, 2, 0, false, "out");
  EXPECT_EQ(out - in, 4) << "parts of a region keep their distances";
  EXPECT_EQ(copies_.bytes(), 5);
  std::vector<engine::Item> items = Items(1);
  copies_.Fetch(absl::MakeSpan(items));
  EXPECT_EQ(std::memcmp(in, "234", 3), 0);
  std::memcpy(out, "XY", 2);
  EXPECT_EQ(memory_.bytes(), "0123456789") << "not before the call is done";
  std::vector<engine::ItemResult> results(1);
  copies_.Store(absl::MakeSpan(results));
  EXPECT_EQ(memory_.bytes(), "012345XY89");
}

TEST_F(RegionCopiesTest, InPlaceTakesMemoryOnce) {
  const std::byte* const in = *copies_.Input(region_, 0, 4, 0, "in");
  EXPECT_EQ(*copies_.Output(region_, 0, 4, 0, true, "out"), in);
  EXPECT_EQ(copies_.bytes(), 4);
}

TEST_F(RegionCopiesTest, RegionsAreApart) {
  const std::byte* const one = *copies_.Input(region_, 0, 4, 0, "in");
  const std::byte* const other = *copies_.Input(Open(memory_, 0, 10), 0, 4, 0, "in");
  EXPECT_NE(one, other);
}

TEST_F(RegionCopiesTest, AnItemWhoseMemoryIsGoneFailsAlone) {
  const SharedMemory short_memory("abcdef");
  const auto shrunk = Open(short_memory, 0, 6);
  (void)*copies_.Input(shrunk, 0, 6, 0, "items[0]");
  const std::byte* const in = *copies_.Input(region_, 0, 2, 1, "items[1]");
  short_memory.Resize(3);
  std::vector<engine::Item> items = Items(2);
  copies_.Fetch(absl::MakeSpan(items));
  ASSERT_TRUE(Failed(items[0]));
  EXPECT_THAT(items[0].status, StatusIs(kInvalid, HasSubstr("items[0]: ")));
  ASSERT_FALSE(Failed(items[1]));
  EXPECT_EQ(std::memcmp(in, "12", 2), 0);
}

TEST_F(RegionCopiesTest, AnItemThatFailedWritesNothing) {
  std::memcpy(*copies_.Output(region_, 0, 2, 0, false, "out"), "XY", 2);
  std::vector<engine::ItemResult> results(1);
  results[0].status = absl::InvalidArgumentError("no");
  copies_.Store(absl::MakeSpan(results));
  EXPECT_EQ(memory_.bytes(), "0123456789");
}

TEST_F(RegionCopiesTest, MemoryThatWasShrunkIsNotWrittenAndInPlaceThatIsAborted) {
  (void)*copies_.Output(region_, 0, 2, 0, false, "items[0].out");
  (void)*copies_.Input(region_, 4, 2, 1, "items[1].in");
  (void)*copies_.Output(region_, 4, 2, 1, true, "items[1].out");
  memory_.Resize(4);
  std::vector<engine::ItemResult> results(2);
  results[0].outputs = results[1].outputs = {{0, 2}};
  copies_.Store(absl::MakeSpan(results));
  EXPECT_THAT(results[0].status, StatusIs(kInvalid, HasSubstr("items[0].out: ")));
  EXPECT_THAT(results[1].status, StatusIs(absl::StatusCode::kAborted, HasSubstr("items[1].out: ")));
  EXPECT_TRUE(results[0].outputs.empty() && results[1].outputs.empty());
  EXPECT_EQ(memory_.bytes(), "0123") << "it did not grow again";
}

TEST_F(RegionCopiesTest, AnItemThatChangedOtherMemoryInPlaceIsAbortedToo) {
  (void)*copies_.Output(region_, 0, 2, 1, false, "out");
  copies_.NoteInPlace(1);
  memory_.Resize(1);
  std::vector<engine::ItemResult> results(2);
  copies_.Store(absl::MakeSpan(results));
  EXPECT_THAT(results[1].status, StatusIs(absl::StatusCode::kAborted, HasSubstr("out: ")));
}

TEST_F(RegionCopiesTest, AddressesOfALargeRegionCostNoMemory) {
  const SharedMemory large("x");
  large.Resize(int64_t{64} << 30);
  const auto region = Open(large, 0, int64_t{64} << 30);
  const std::byte* const in = *copies_.Input(region, (int64_t{64} << 30) - 4096, 4096, 0, "in");
  std::vector<engine::Item> items = Items(1);
  copies_.Fetch(absl::MakeSpan(items));
  EXPECT_FALSE(Failed(items[0]));
  EXPECT_EQ(in[4095], std::byte{0});
  EXPECT_EQ(copies_.bytes(), 4096);
}

}  // namespace
}  // namespace phasor::memory
