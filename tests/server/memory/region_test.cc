// SPDX-License-Identifier: Apache-2.0
// Tests reading and writing a client's memory, whatever the client does to it meanwhile.
#include "server/memory/region.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>
#include <string>

#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::SharedMemory;
using ::phasor::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string ReadAll(const Region& region, int64_t offset, int64_t bytes) {
  std::string out(static_cast<size_t>(bytes), '?');
  EXPECT_THAT(region.Read(offset, bytes, reinterpret_cast<std::byte*>(out.data()), "x"), IsOk());
  return out;
}

const std::byte* BytesOf(const std::string& text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

int OpenDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(RegionTest, ReadsAndWritesItsPartAndNothingElse) {
  const SharedMemory memory("0123456789");
  const auto region = Region::Open({memory.key(), 2, 6}, {});
  ASSERT_THAT(region, IsOk());
  EXPECT_EQ(ReadAll(**region, 0, 6), "234567");
  EXPECT_EQ(ReadAll(**region, 1, 3), "345");
  ASSERT_THAT((*region)->Write(4, 2, BytesOf("XY"), "x"), IsOk());
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
  EXPECT_THAT((*region)->CheckRange(0, 6, "x"), IsOk());
  EXPECT_THAT((*region)->CheckRange(6, 0, "x"), IsOk());
  const std::pair<int64_t, int64_t> outside[] = {{0, 7},  {6, 1},    {7, 0},       {-1, 1},
                                                 {0, -1}, {kMax, 1}, {3, kMax - 1}};
  for (const auto& [offset, bytes] : outside) {
    EXPECT_THAT((*region)->CheckRange(offset, bytes, "x"), StatusIs(kInvalid, HasSubstr("x: ")));
  }
}

TEST(RegionTest, AClientThatShrinksItsMemoryGetsAnError) {
  const SharedMemory memory("0123456789");
  const auto region = Region::Open({memory.key(), 0, 10}, {});
  ASSERT_THAT(region, IsOk());
  memory.Resize(4);
  std::string out(10, '?');
  EXPECT_THAT((*region)->Read(0, 10, reinterpret_cast<std::byte*>(out.data()), "x"),
              StatusIs(kInvalid, HasSubstr("shrunk")));
  EXPECT_THAT((*region)->Write(0, 10, BytesOf("aaaaaaaaaa"), "x"),
              StatusIs(kInvalid, HasSubstr("shrunk")));
  EXPECT_EQ(memory.bytes(), "0123");  // it did not grow again
}

TEST(RegionTest, WhatIsOnlyReadIsOpenedForReading) {
  const SharedMemory memory("0123456789");
  const auto region = Region::Open({memory.key(), 0, 10, /*read_only=*/true}, {});
  ASSERT_THAT(region, IsOk());
  EXPECT_EQ(ReadAll(**region, 0, 3), "012");
  EXPECT_THAT((*region)->CheckWritable("x"), StatusIs(absl::StatusCode::kPermissionDenied, _));
  EXPECT_THAT((*region)->Write(0, 1, BytesOf("a"), "x"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("x: ")));
  EXPECT_EQ(memory.bytes(), "0123456789");
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
  EXPECT_EQ(ReadAll(**region, 0, 3), "abc");
}

}  // namespace
}  // namespace phasor::memory
