// SPDX-License-Identifier: Apache-2.0
// Tests mapped memory that its owner takes away.
#include "server/memory/guarded_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/memfd.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;

const int64_t kPage = sysconf(_SC_PAGESIZE);

// A file in memory that may shrink, filled with 'm'.
struct File : testing::Memfd {
  explicit File(int64_t bytes) : Memfd(std::string(static_cast<size_t>(bytes), 'm'), /*seals=*/0) {}
};

std::unique_ptr<const GuardedMapping> Map(const File& file, int64_t offset, int64_t bytes,
                                          bool writable = true) {
  auto mapping = GuardedMapping::Map(file.fd(), offset, bytes, writable);
  EXPECT_THAT(mapping, IsOk());
  return *std::move(mapping);
}

std::string Text(const GuardedMapping& mapping, int64_t bytes) {
  return {reinterpret_cast<const char*>(mapping.data()), static_cast<size_t>(bytes)};
}

TEST(GuardedMappingTest, IsTheMemoryFromItsOffsetOn) {
  const File file(2 * kPage);
  const auto mapping = Map(file, kPage + 3, 5);
  std::memcpy(mapping->data(), "abcde", 5);
  std::string expected(static_cast<size_t>(2 * kPage), 'm');
  expected.replace(static_cast<size_t>(kPage) + 3, 5, "abcde");
  EXPECT_EQ(file.bytes() == expected, true);
  EXPECT_FALSE(mapping->lost());
}

TEST(GuardedMappingTest, WhatIsMissingReadsAsZerosAndTakesWritesThatNobodySees) {
  const File file(4 * kPage);
  const auto mapping = Map(file, 0, 4 * kPage);
  file.Resize(kPage);
  EXPECT_FALSE(mapping->lost()) << "nobody has touched it";
  std::memset(mapping->data(), 'w', static_cast<size_t>(4 * kPage));
  EXPECT_TRUE(mapping->lost());
  EXPECT_EQ(file.bytes().size(), static_cast<size_t>(kPage)) << "it did not grow again";
  file.Resize(4 * kPage);
  EXPECT_TRUE(mapping->lost()) << "for good";
  EXPECT_EQ(Text(*mapping, 4 * kPage).substr(static_cast<size_t>(kPage)),
            std::string(static_cast<size_t>(3 * kPage), 'w'));
}

TEST(GuardedMappingTest, MemoryForReadingReadsAsZeros) {
  const File file(kPage);
  const auto mapping = Map(file, 0, kPage, /*writable=*/false);
  file.Resize(0);
  EXPECT_EQ(Text(*mapping, kPage), std::string(static_cast<size_t>(kPage), '\0'));
  EXPECT_TRUE(mapping->lost());
}

int64_t OwnMemory() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line) && !line.starts_with("RssAnon:")) {
  }
  return std::stoll(line.substr(line.find(':') + 1)) << 10;
}

TEST(GuardedMappingTest, WhatReplacesALargeMappingIsSmall) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer has memory of its own for each byte";
#endif
  constexpr int64_t kLarge = int64_t{256} << 20;
  const File file(1);
  file.Resize(kLarge);
  const auto mapping = Map(file, 0, kLarge);
  file.Resize(0);
  const int64_t before = OwnMemory();
  std::memset(mapping->data(), 'w', kLarge);
  EXPECT_TRUE(mapping->lost());
  EXPECT_LT(OwnMemory() - before, kLarge / 4);
  mapping->data()[0] = std::byte{'x'};
  EXPECT_EQ(mapping->data()[kLarge / 2], std::byte{'x'}) << "the same pages, over and over";
}

TEST(GuardedMappingTest, OtherMappingsStayAsTheyAre) {
  const File file(kPage), shrunk(kPage);
  const auto before = Map(file, 0, kPage), mapping = Map(shrunk, 0, kPage),
             after = Map(file, 0, kPage);
  shrunk.Resize(0);
  EXPECT_EQ(mapping->data()[kPage - 1], std::byte{0});
  EXPECT_TRUE(mapping->lost());
  EXPECT_FALSE(before->lost() || after->lost());
  EXPECT_EQ(Text(*before, kPage), file.bytes());
  EXPECT_EQ(Text(*after, kPage), file.bytes());
}

TEST(GuardedMappingTest, ManyThreadsMayFindItMissing) {
  constexpr int kThreads = 8;
  for (int round = 0; round < 50; ++round) {
    const File file(kThreads * kPage);
    const auto mapping = Map(file, 0, kThreads * kPage);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        std::byte* const page = mapping->data() + i * kPage;
        do {
          std::memset(page, 'w', static_cast<size_t>(kPage));
        } while (!mapping->lost());
      });
    }
    file.Resize(0);
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(file.bytes().empty());
  }
}

// Mappings come and go while other ones are lost.
TEST(GuardedMappingTest, ComesAndGoesWhileOthersAreLost) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    const File file(kPage);
    while (!stop) EXPECT_EQ(Map(file, 0, kPage)->data()[0], std::byte{'m'});
  });
  for (int i = 0; i < 500; ++i) {
    const File file(kPage);
    const auto mapping = Map(file, 0, kPage);
    file.Resize(0);
    EXPECT_EQ(mapping->data()[0], std::byte{0});
  }
  stop = true;
  other.join();
}

TEST(GuardedMappingDeathTest, OtherBusErrorsEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const File file(kPage);
  const auto guarded = Map(file, 0, kPage);
  void* const plain =
      mmap(nullptr, static_cast<size_t>(kPage), PROT_READ, MAP_SHARED, file.fd(), 0);
  ASSERT_NE(plain, MAP_FAILED);
  EXPECT_DEATH(
      {
        file.Resize(0);
        std::string(static_cast<const char*>(plain), 1);
      },
      "");
  EXPECT_DEATH(kill(getpid(), SIGBUS), "");
  munmap(plain, static_cast<size_t>(kPage));
}

TEST(GuardedMappingTest, AHandlerOfBusErrorsFromBeforeStillGetsTheOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        signal(SIGBUS, [](int) { _exit(7); });
        const File file(kPage);
        const auto guarded = Map(file, 0, kPage);
        raise(SIGBUS);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(GuardedMappingTest, WhereBusErrorsAreIgnoredOnlyThoseThatAProcessSentAre) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        signal(SIGBUS, SIG_IGN);
        const File file(kPage);
        const auto guarded = Map(file, 0, kPage);
        raise(SIGBUS);
        void* const plain =
            mmap(nullptr, static_cast<size_t>(kPage), PROT_READ, MAP_SHARED, file.fd(), 0);
        file.Resize(0);
        _exit(*static_cast<volatile char*>(plain));
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(GuardedMappingTest, WhatTheSystemRefusesIsAnError) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_THAT(GuardedMapping::Map(pipes[0], 0, 1, false),
              testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                ::testing::HasSubstr("1 bytes cannot be mapped (")));
  for (const int end : pipes) close(end);
}

}  // namespace
}  // namespace phasor::memory
