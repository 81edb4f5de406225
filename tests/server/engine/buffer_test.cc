// SPDX-License-Identifier: Apache-2.0
// Tests buffers: alignment, reuse, and limits on what is kept.
#include "server/engine/buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>
#include <vector>

namespace phasor::engine {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;

uintptr_t Address(const BufferRef& buffer) { return reinterpret_cast<uintptr_t>(buffer->data()); }

bool IsMapped(uintptr_t address) {
  unsigned char resident;
  return mincore(reinterpret_cast<void*>(address), 1, &resident) == 0;
}

TEST(BufferPoolTest, AlignsSmallToCacheLinesAndLargeToPages) {
  BufferPool pool(kMiB);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{65}, 64 * kKiB - 1}) {
    EXPECT_EQ(Address(pool.Get(bytes)) % 64, 0u) << bytes;
  }
  for (const int64_t bytes : {64 * kKiB, 64 * kKiB + 1, kMiB, 2 * kMiB - 1, 5 * kMiB + 3}) {
    EXPECT_EQ(Address(pool.Get(bytes)) % 4096, 0u) << bytes;
  }
}

TEST(BufferPoolTest, GivesAllTheBytesOfEverySize) {
  BufferPool pool(64 * kMiB);
  for (int64_t bytes = 60 * kKiB; bytes < 9 * kMiB; bytes = bytes * 5 / 4 + 1) {
    const BufferRef buffer = pool.Get(bytes);
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(buffer->size(), bytes);
    std::memset(buffer->data(), 0xAB, static_cast<size_t>(bytes));
    EXPECT_EQ(buffer->data()[bytes - 1], std::byte{0xAB});
  }
}

TEST(BufferPoolTest, EmptyBufferHasAnAddress) {
  BufferPool pool(0);
  const BufferRef buffer = pool.Get(0);
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(buffer->size(), 0);
  EXPECT_NE(buffer->data(), nullptr);
}

TEST(BufferPoolTest, ReusesALargeBufferOfTheSameClass) {
  BufferPool pool(64 * kMiB);
  const uintptr_t first = Address(pool.Get(16 * kMiB));
  EXPECT_EQ(Address(pool.Get(16 * kMiB - 100)), first);
}

TEST(BufferPoolTest, DoesNotHandOutABufferInUse) {
  BufferPool pool(64 * kMiB);
  const BufferRef first = pool.Get(kMiB);
  const BufferRef second = pool.Get(kMiB);
  EXPECT_NE(Address(first), Address(second));
}

TEST(BufferPoolTest, KeepsNoMoreThanItsLimitAndDropsTheOldest) {
  BufferPool pool(3 * kMiB);
  std::vector<BufferRef> buffers;
  for (int i = 0; i < 4; ++i) buffers.push_back(pool.Get(kMiB));
  std::vector<uintptr_t> addresses;
  for (BufferRef& buffer : buffers) {
    addresses.push_back(Address(buffer));
    buffer.reset();
  }
  EXPECT_FALSE(IsMapped(addresses[0]));
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(IsMapped(addresses[i])) << i;
}

TEST(BufferPoolTest, DropsABufferLargerThanItsLimitAndKeepsTheRest) {
  BufferPool pool(2 * kMiB);
  const uintptr_t small = Address(pool.Get(kMiB));
  const uintptr_t large = Address(pool.Get(8 * kMiB));
  EXPECT_TRUE(IsMapped(small));
  EXPECT_FALSE(IsMapped(large));
}

TEST(BufferPoolTest, KeepsNoMoreThanThereIsRoomFor) {
  int64_t room = 8 * kMiB;
  BufferPool pool(64 * kMiB, [&room] { return room; });
  { const BufferRef buffers[] = {pool.Get(4 * kMiB), pool.Get(4 * kMiB), pool.Get(4 * kMiB)}; }
  EXPECT_EQ(pool.kept_bytes(), 8 * kMiB);
  room = 5 * kMiB;
  EXPECT_NE(pool.Get(4 * kMiB), nullptr);  // one that is kept: nothing is mapped
  EXPECT_EQ(pool.kept_bytes(), 4 * kMiB);
  room = 3 * kMiB;
  const BufferRef other = pool.Get(kMiB);
  EXPECT_EQ(pool.kept_bytes(), 0);
  room = -1;
  EXPECT_NE(pool.Get(kMiB), nullptr);
  EXPECT_EQ(pool.kept_bytes(), 0);
}

TEST(BufferPoolTest, BufferOutlivesItsPool) {
  auto pool = std::make_unique<BufferPool>(64 * kMiB);
  BufferRef buffer = pool->Get(kMiB);
  const uintptr_t kept = Address(pool->Get(2 * kMiB));
  const uintptr_t address = Address(buffer);
  pool.reset();
  EXPECT_FALSE(IsMapped(kept));
  std::memset(buffer->data(), 1, kMiB);
  buffer.reset();
  EXPECT_FALSE(IsMapped(address));
}

TEST(BufferPoolTest, AnswersNullWhenTheSystemHasNoMemory) {
  BufferPool pool(0);
  EXPECT_EQ(pool.Get(int64_t{1} << 60), nullptr);
  EXPECT_EQ(pool.Get(INT64_MAX), nullptr);
}

TEST(BufferPoolTest, ServesManyThreads) {
  BufferPool pool(8 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const BufferRef buffer = pool.Get(64 * kKiB + i * 977);
        buffer->data()[0] = static_cast<std::byte>(t);
        buffer->data()[buffer->size() - 1] = static_cast<std::byte>(t);
        ASSERT_EQ(buffer->data()[0], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace phasor::engine
