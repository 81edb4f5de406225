// SPDX-License-Identifier: Apache-2.0
// The thread pool: every piece runs once, and helpers share the work of several callers.
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace phasor::cpu {
namespace {

// Keeps this thread busy for longer than threads of the pool look for work before they sleep.
void BeBusy() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST(ThreadPoolTest, RunsEveryPieceExactlyOnce) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> ran(count);
      pool.ParallelFor(count, [&](int64_t i) { ++ran[i]; });
      for (const auto& r : ran) EXPECT_EQ(r, 1);
    }
  }
}

TEST(ThreadPoolTest, OneThreadRunsOnTheCallersThread) {
  ThreadPool pool(1);
  const auto caller = std::this_thread::get_id();
  pool.ParallelFor(10, [&](int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ThreadPoolTest, ServesConcurrentCallersWithoutMixingTheirWork) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&pool] {
      for (int round = 0; round < 50; ++round) {
        std::atomic<int64_t> sum = 0;
        pool.ParallelFor(100, [&](int64_t i) { sum += i; });
        EXPECT_EQ(sum, 4950);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(ThreadPoolTest, HelpersShareTheWorkOfABlockedCaller) {
  ThreadPool pool(2);
  // Piece 0 ends only after another piece has run, so a helper must run that one.
  std::atomic<int> ran = 0;
  pool.ParallelFor(2, [&](int64_t) {
    ++ran;
    while (ran < 2) std::this_thread::yield();
  });
  EXPECT_EQ(ran, 2);
}

TEST(ThreadPoolTest, EachThreadBeginsInARangeOfItsOwn) {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> begun = 0;
  std::atomic<int64_t> of_caller = -1, of_helper = -1;
  pool.ParallelFor(9, [&](int64_t i) {
    int64_t none = -1;
    const bool is_caller = std::this_thread::get_id() == caller;
    if (!(is_caller ? of_caller : of_helper).compare_exchange_strong(none, i)) return;
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(of_caller, 0);
  EXPECT_EQ(of_helper, 5) << "the caller's range is the larger one";
}

TEST(ThreadPoolTest, AThreadTakesWhatOthersLeave) {
  ThreadPool pool(2);
  // Piece 0 ends only after all others have run, of which two are in the range of the same thread.
  std::atomic<int> ran = 0;
  pool.ParallelFor(6, [&](int64_t i) {
    while (i == 0 && ran < 5) std::this_thread::yield();
    ++ran;
  });
  EXPECT_EQ(ran, 6);
}

TEST(ThreadPoolTest, WakesHelpersAndCallersThatSleep) {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 20; ++round) {
    BeBusy();  // the helper sleeps now
    std::atomic<int> begun = 0, ended = 0;
    pool.ParallelFor(2, [&](int64_t) {
      ++begun;
      while (begun < 2) std::this_thread::yield();
      if (std::this_thread::get_id() != caller) BeBusy();  // the caller sleeps meanwhile
      ++ended;
    });
    EXPECT_EQ(ended, 2);
  }
}

}  // namespace
}  // namespace phasor::cpu
