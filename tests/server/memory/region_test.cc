// SPDX-License-Identifier: Apache-2.0
// Tests the memory of a client, whatever the client does to it meanwhile.
#include "server/memory/region.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <limits>
#include <string>

#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::SharedMemory;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string Text(const Region& region, int64_t offset, int64_t bytes) {
  const auto data = region.At(offset, bytes, "x");
  EXPECT_THAT(data, IsOk());
  return {reinterpret_cast<const char*>(*data), static_cast<size_t>(bytes)};
}

int OpenDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(RegionTest, IsItsPartOfTheMemory) {
  const SharedMemory memory("0123456789");
  const auto region = Region::Open({memory.key(), 2, 6}, {});
  ASSERT_THAT(region, IsOk());
  EXPECT_EQ(Text(**region, 0, 6), "234567");
  EXPECT_EQ(Text(**region, 1, 3), "345");
  std::memcpy(*(*region)->At(4, 2, "x"), "XY", 2);
  EXPECT_EQ(memory.bytes(), "012345XY89");
}

TEST(RegionTest, RefusesPlacesOutsideTheMemoryEvenWhenTheirEndOverflows) {
  const SharedMemory memory("0123456789");
  const RegionPlace places[] = {{memory.key(), 0, 11},   {memory.key(), 11, 1},
                                {memory.key(), 10, 1},   {memory.key(), 4, kMax - 2},
                                {memory.key(), kMax, 1}, {memory.key(), -1, 2},
                                {memory.key(), 0, 0},    {memory.key(), 0, -1}};
  const int descriptors = OpenDescriptors();
  for (const RegionPlace& place : places) {
    EXPECT_THAT(Region::Open(place, {}), StatusIs(kInvalid, HasSubstr("byte_size: ")))
        << place.offset << " " << place.bytes;
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);  // refused regions are closed
}

TEST(RegionTest, KeysAreNamesOfSharedMemoryAndNoPaths) {
  const std::string keys[] = {
      "", "/", "//", "/a/b", "/..", ".", std::string("/a\0b", 4), std::string(300, 'k')};
  for (const std::string& key : keys) {
    EXPECT_THAT(Region::Open({key, 0, 1}, {}), StatusIs(kInvalid, HasSubstr("key: "))) << key;
  }
}

TEST(RegionTest, AKeyMayLackItsSlash) {
  const SharedMemory memory("abc");
  EXPECT_THAT(Region::Open({memory.key().substr(1), 0, 3}, {}), IsOk());
}

TEST(RegionTest, MemoryThatDoesNotExistIsNotFound) {
  EXPECT_THAT(Region::Open({"/phasor_test_no_such", 0, 1}, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'/phasor_test_no_such'")));
}

TEST(RegionTest, RangesStayInsideTheRegion) {
  const SharedMemory memory("0123456789");
  const auto region = Region::Open({memory.key(), 2, 6}, {});
  ASSERT_THAT(region, IsOk());
  EXPECT_THAT((*region)->At(0, 6, "x"), IsOk());
  EXPECT_THAT((*region)->At(6, 0, "x"), IsOk());
  const std::pair<int64_t, int64_t> outside[] = {{0, 7},  {6, 1},    {7, 0},       {-1, 1},
                                                 {0, -1}, {kMax, 1}, {3, kMax - 1}};
  for (const auto& [offset, bytes] : outside) {
    EXPECT_THAT((*region)->At(offset, bytes, "x"), StatusIs(kInvalid, HasSubstr("x: ")));
  }
}

TEST(RegionTest, AClientThatShrinksItsMemoryGetsAnError) {
  const SharedMemory memory(std::string(10'000, 'm'));
  const auto region = Region::Open({memory.key(), 0, 10'000}, {});
  ASSERT_THAT(region, IsOk());
  EXPECT_THAT((*region)->CheckWhole("x"), IsOk());
  memory.Resize(9999);
  EXPECT_THAT((*region)->CheckWhole("x"),
              StatusIs(kInvalid, HasSubstr("x: the shared memory was shrunk")));
  memory.Resize(10'000);
  EXPECT_THAT((*region)->CheckWhole("x"), IsOk()) << "nobody has touched what was missing";
  memory.Resize(0);
  EXPECT_EQ(Text(**region, 9998, 2), std::string(2, '\0'));
  EXPECT_THAT((*region)->CheckWhole("x"), StatusIs(kInvalid, HasSubstr("shrunk")));
  memory.Resize(10'000);
  EXPECT_THAT((*region)->CheckWhole("x"), StatusIs(absl::StatusCode::kResourceExhausted,
                                                   HasSubstr("x: parts of the shared memory")));
}

TEST(RegionTest, WhatIsOnlyReadIsOpenedForReading) {
  const SharedMemory memory("0123456789");
  const auto region = Region::Open({memory.key(), 0, 10, /*read_only=*/true}, {});
  ASSERT_THAT(region, IsOk());
  EXPECT_EQ(Text(**region, 0, 3), "012");
  EXPECT_THAT((*region)->CheckWritable("x"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("x: ")));
}

// A pipe without a writer would keep whoever opens it waiting.
TEST(RegionTest, WhatIsNoMemoryIsRefusedAtOnce) {
  const std::string key = "/phasor_test_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(("/dev/shm" + key).c_str(), 0600), 0);
  for (const bool read_only : {false, true}) {
    EXPECT_THAT(Region::Open({key, 0, 1, read_only}, {}),
                StatusIs(kInvalid, HasSubstr("not shared memory")));
  }
  shm_unlink(key.c_str());
}

TEST(RegionTest, LinksAreNotFollowed) {
  const std::string key = "/phasor_test_link_" + std::to_string(getpid());
  ASSERT_EQ(symlink("/etc/passwd", ("/dev/shm" + key).c_str()), 0);
  EXPECT_THAT(Region::Open({key, 0, 1, /*read_only=*/true}, {}),
              StatusIs(kInvalid, HasSubstr("key: ")));
  shm_unlink(key.c_str());
}

TEST(RegionTest, OutlivesTheNameOfItsMemory) {
  auto memory = std::make_unique<SharedMemory>("abc");
  const auto region = Region::Open({memory->key(), 0, 3}, {});
  ASSERT_THAT(region, IsOk());
  memory.reset();
  EXPECT_EQ(Text(**region, 0, 3), "abc");
}

}  // namespace
}  // namespace phasor::memory
