// SPDX-License-Identifier: Apache-2.0
// Counts the allocator's heaps in a process of its own, because the limit holds for a whole process
// from its first thread on.
#include "server/base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <barrier>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace phasor {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnAllocator = true;
#else
constexpr bool kOwnAllocator = false;
#endif

TEST(ProcessTest, NoFileGetsTheNumberOfAClosedStandardStream) {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const int kept = dup(stream);
    ASSERT_EQ(close(stream), 0);
    OpenStandardStreams();
    const int next = dup(kept);
    EXPECT_EQ(fcntl(stream, F_GETFL) & O_ACCMODE, O_RDONLY);
    ASSERT_EQ(dup2(kept, stream), stream);
    EXPECT_GT(next, STDERR_FILENO);
    close(kept);
    close(next);
  }
}

void BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

TEST(StartWatchDeathTest, BlockedSignalsEndTheProcessAsLongAsItStarts) {
  for (const int number : {SIGTERM, SIGINT}) {
    const auto start = [number] {
      BlockStopSignals();
      const StartWatch watch;
      kill(getpid(), number);
      alarm(60);  // if nothing else ends it
      while (true) pause();
    };
    EXPECT_EXIT(start(), ::testing::KilledBySignal(number), "");
  }
}

TEST(StartWatchDeathTest, LaterSignalsStayPending) {
  const auto start = [] {
    BlockStopSignals();
    { const StartWatch watch; }
    kill(getpid(), SIGTERM);
    sigset_t pending;
    sigpending(&pending);
    std::_Exit(sigismember(&pending, SIGTERM) == 1 ? 0 : 1);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(0), "");
}

TEST(LeaveAtSignalDeathTest, TheNthSignalEndsTheProcess) {
  const auto drain = [](int nth, int signals) {
    BlockStopSignals();
    LeaveAtSignal(nth);
    for (int i = 0; i < signals; ++i) raise(i == 0 ? SIGTERM : SIGINT);
    std::_Exit(0);
  };
  EXPECT_EXIT(drain(1, 1), ::testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(drain(2, 1), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(drain(2, 2), ::testing::ExitedWithCode(128 + SIGINT), "");
}

// Of the allocator's own account of itself.
int Heaps() {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  malloc_info(0, out);
  std::fclose(out);
  const std::string xml(text, size);
  std::free(text);
  int heaps = 0;
  for (size_t at = xml.find("<heap nr="); at != std::string::npos;
       at = xml.find("<heap nr=", at + 1)) {
    ++heaps;
  }
  return heaps;
}

// Ends the process with the heaps that `threads` use which allocate at the same time.
[[noreturn]] void ExitWithHeaps(int cores, const char* environment, int threads) {
  if (environment != nullptr) putenv(const_cast<char*>(environment));
  LimitHeaps(cores);
  std::vector<std::thread> all;
  std::barrier allocated(threads);
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&allocated] {
      void* volatile block = std::malloc(5000);
      allocated.arrive_and_wait();
      std::free(block);
    });
  }
  for (std::thread& thread : all) thread.join();
  std::_Exit(Heaps());
}

class HeapDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kOwnAllocator) GTEST_SKIP() << "a sanitizer brings its own allocator";
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
};

TEST_F(HeapDeathTest, OneForEightCores) {
  EXPECT_EXIT(ExitWithHeaps(2, nullptr, 6), ::testing::ExitedWithCode(1), "");
  EXPECT_EXIT(ExitWithHeaps(24, nullptr, 6), ::testing::ExitedWithCode(3), "");
}

// The C library reads it at the start only, so here its default is left: one for each thread.
TEST_F(HeapDeathTest, WhoeverSetsTheVariableDecides) {
  EXPECT_EXIT(ExitWithHeaps(2, "MALLOC_ARENA_MAX=9", 6), ::testing::ExitedWithCode(7), "");
}

void Throw(const std::exception& error) {
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) throw *system;
  throw error;
}

[[noreturn]] void EndBy(const std::exception& error) {
  NameMissingThreads();
  [&error]() noexcept { Throw(error); }();
  std::_Exit(0);
}

TEST(ThreadDeathTest, AThreadThatCannotBeStartedIsNamed) {
  EXPECT_EXIT(EndBy(std::system_error(EAGAIN, std::generic_category())),
              ::testing::ExitedWithCode(1), "threads: no more can be started; raise");
  EXPECT_EXIT(EndBy(std::system_error(ENOENT, std::generic_category())),
              ::testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(EndBy(std::exception()), ::testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace phasor
