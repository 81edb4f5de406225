// SPDX-License-Identifier: Apache-2.0
// Tests what is mapped, what is refused, and that mapped memory cannot be taken away.
#include "server/memory/sealed_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/support/memfd.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::Memfd;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

auto Invalid(const char* message) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
}

TEST(SealedMemoryTest, BothSidesSeeTheSameBytes) {
  const Memfd memfd("hello");
  const auto memory = SealedMemory::Map(memfd.fd());
  ASSERT_THAT(memory, IsOk());
  EXPECT_EQ((*memory)->bytes(), 5);
  EXPECT_TRUE((*memory)->writable());
  const auto read = (*memory)->Read(1, 4, "tensor");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(std::memcmp(*read, "ello", 4), 0);
  const auto write = (*memory)->Write(0, 1, "tensor");
  ASSERT_THAT(write, IsOk());
  **write = std::byte{'J'};
  EXPECT_EQ(memfd.bytes(), "Jello");
}

TEST(SealedMemoryTest, RangesMustBeInside) {
  const Memfd memfd("hello");
  const auto memory = *SealedMemory::Map(memfd.fd());
  EXPECT_THAT(memory->Read(5, 0, "tensor"), IsOk());
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const auto& [offset, bytes] : {std::pair<int64_t, int64_t>{0, 6},
                                      {5, 1},
                                      {6, 0},
                                      {-1, 1},
                                      {0, -1},
                                      {1, kMost},
                                      {kMost, 1},
                                      {kMost, kMost}}) {
    EXPECT_THAT(memory->Read(offset, bytes, "tensor"), Invalid("tensor: "));
    EXPECT_THAT(memory->Write(offset, bytes, "tensor"),
                Invalid("within the 5 bytes of the region"));
  }
}

TEST(SealedMemoryTest, WhatCouldEndTheProcessIsRefused) {
  EXPECT_THAT(SealedMemory::Map(Memfd("hello", 0).fd()), Invalid("F_SEAL_SHRINK"));
  EXPECT_THAT(SealedMemory::Map(Memfd(int64_t{0}).fd()), Invalid("is empty"));
  EXPECT_THAT(SealedMemory::Map(-1), Invalid("must be a memfd"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_THAT(SealedMemory::Map(ends[0]), Invalid("must be a memfd"));
  close(ends[0]);
  close(ends[1]);
  const int file = open("/proc/self/exe", O_RDONLY);
  EXPECT_THAT(SealedMemory::Map(file), Invalid("must be a memfd"));
  close(file);
  // Named shared memory cannot be sealed, so it may shrink.
  const testing::SharedMemory named("hello");
  const int shm = shm_open(named.key().c_str(), O_RDWR, 0);
  EXPECT_THAT(SealedMemory::Map(shm), Invalid("F_SEAL_SHRINK"));
  close(shm);
}

TEST(SealedMemoryTest, MemoryThatIsNotThereYetIsRefused) {
  const Memfd memfd("x", 0);
  ASSERT_EQ(ftruncate(memfd.fd(), int64_t{1} << 40), 0);
  ASSERT_EQ(fcntl(memfd.fd(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THAT(SealedMemory::Map(memfd.fd()), Invalid("are allocated; must be all of them"));
}

TEST(SealedMemoryTest, NobodyCanTakeItAway) {
  const Memfd memfd(int64_t{1} << 20);
  void* const own =
      mmap(nullptr, size_t{1} << 20, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.fd(), 0);
  ASSERT_NE(own, MAP_FAILED);
  const auto memory = *SealedMemory::Map(memfd.fd());
  EXPECT_NE(ftruncate(memfd.fd(), 0), 0);
  EXPECT_NE(ftruncate(memfd.fd(), 4096), 0);
  EXPECT_NE(fallocate(memfd.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, int64_t{1} << 20),
            0);
  EXPECT_NE(madvise(own, size_t{1} << 20, MADV_REMOVE), 0);
  static_cast<char*>(own)[1 << 19] = 'x';  // its owner still writes
  EXPECT_EQ(**memory->Read(1 << 19, 1, "x"), std::byte{'x'});
  munmap(own, size_t{1} << 20);
}

TEST(SealedMemoryTest, PagesThatCannotBeKeptAreRefused) {
  EXPECT_THAT(SealedMemory::Map(Memfd("hello", F_SEAL_SHRINK | F_SEAL_SEAL).fd()),
              Invalid("F_SEAL_FUTURE_WRITE"));
  const Memfd memfd("hello");
  const int reading = open(("/proc/self/fd/" + std::to_string(memfd.fd())).c_str(), O_RDONLY);
  EXPECT_THAT(SealedMemory::Map(reading), Invalid("sealed against writing"));
  close(reading);
}

TEST(SealedMemoryTest, TheSecondMappingIsReadOnly) {
  const Memfd memfd("hello");
  EXPECT_TRUE((*SealedMemory::Map(memfd.fd()))->writable());
  EXPECT_FALSE((*SealedMemory::Map(memfd.fd()))->writable());
}

TEST(SealedMemoryTest, MemorySealedAgainstWritingIsReadOnly) {
  const Memfd memfd("hello", F_SEAL_SHRINK | F_SEAL_WRITE);
  const auto memory = SealedMemory::Map(memfd.fd());
  ASSERT_THAT(memory, IsOk());
  EXPECT_FALSE((*memory)->writable());
  EXPECT_THAT((*memory)->Read(0, 5, "x"), IsOk());
  EXPECT_THAT((*memory)->Write(0, 5, "tensors[0].destination"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("tensors[0].destination: the memory is sealed")));
}

}  // namespace
}  // namespace phasor::memory
