// SPDX-License-Identifier: Apache-2.0
// A load with a fixed number of calls per second. Every answer is checked.
#ifndef PHASOR_TESTS_SUPPORT_STEADY_LOAD_H_
#define PHASOR_TESTS_SUPPORT_STEADY_LOAD_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "tests/support/eventually.h"

namespace phasor::testing {

// Encode calls of one position, so many a second, from several threads; every answer is compared
// with what this program computes. Ends when it is destroyed.
class SteadyLoad {
 public:
  SteadyLoad(Client client, double calls_per_second)
      : client_(std::move(client)), gap_(absl::Seconds(1 / calls_per_second)), start_(absl::Now()) {
    auto here = *Client::Connect("inproc:");
    for (int64_t i = 0; i < kPositions; ++i) rows_.push_back(*here.Encode(kSpec, {i}));
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~SteadyLoad() { Stop(); }

  void Stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Waits until so many more calls have ended.
  void Await(int64_t calls) const {
    const int64_t target = ended() + calls;
    EXPECT_TRUE(Eventually([&] { return ended() >= target; }));
  }

  int64_t ended() const { return ended_; }
  // That failed or answered something else, and what the first of them said.
  int64_t failed() const { return failed_; }
  std::string failure() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  double calls_per_second() const {
    return static_cast<double>(ended()) / absl::ToDoubleSeconds(absl::Now() - start_);
  }
  absl::Duration slowest() const { return absl::Microseconds(slowest_us_.load()); }

 private:
  static constexpr int kThreads = 16, kPositions = 64;
  static inline const Spec kSpec{.preset = "timestep-sin-cos", .dim = 128};

  void Run() {
    while (!stopping_) {
      const int64_t i = next_++;
      absl::SleepFor(start_ + gap_ * i - absl::Now());  // until it is due
      const absl::Time due = absl::Now();
      const auto row = client_.Encode(kSpec, {i % kPositions});
      Note(absl::Now() - due);
      if (!row.ok()) {
        Fail(row.status().ToString());
      } else if (row->span() != rows_[i % kPositions].span()) {
        Fail("a wrong answer");
      }
      ++ended_;
    }
  }
  void Note(absl::Duration latency) {
    const int64_t us = absl::ToInt64Microseconds(latency);
    int64_t seen = slowest_us_;
    while (us > seen && !slowest_us_.compare_exchange_weak(seen, us)) {
    }
  }
  void Fail(const std::string& what) {
    std::lock_guard lock(mutex_);
    if (failed_++ == 0)
      failure_ = absl::StrCat("after ", absl::FormatDuration(absl::Now() - start_), ": ", what);
  }

  const Client client_;
  const absl::Duration gap_;
  const absl::Time start_;
  std::vector<Array<float>> rows_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> next_ = 0, ended_ = 0, failed_ = 0, slowest_us_ = 0;
  mutable std::mutex mutex_;
  std::string failure_;
  std::vector<std::thread> threads_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_STEADY_LOAD_H_
