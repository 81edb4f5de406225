// SPDX-License-Identifier: Apache-2.0
// Tests the load generator: counts, errors, rates, latencies and percentiles.
#include "client/cli/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"

namespace phasor::cli {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kLong = absl::Seconds(100);

LoadResult RunAll(const LoadOptions& options, const std::vector<Operation>& workers) {
  const std::atomic<bool> never = false;
  LoadProgress progress;
  LoadResult result = RunLoad(options, workers, never, &progress);
  int64_t failed = 0;
  for (const auto& [code, errors] : result.errors) failed += errors.count;
  EXPECT_EQ(progress.succeeded, result.succeeded);
  EXPECT_EQ(progress.failed, failed);
  return result;
}

TEST(LoadTest, EveryOperationIsCountedAndTimed) {
  std::atomic<int64_t> calls = 0;
  const Operation operation = [&] {
    ++calls;
    absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  };
  LoadResult result = RunAll({absl::Milliseconds(50)}, {operation, operation, operation});
  EXPECT_EQ(result.succeeded, calls);
  EXPECT_EQ(result.latencies.size(), static_cast<size_t>(calls.load()));
  EXPECT_GE(result.Percentile(0.01), 1e-3);
  EXPECT_LE(result.Percentile(1), absl::ToDoubleSeconds(result.elapsed));
  EXPECT_GE(result.elapsed, absl::Milliseconds(50));
  EXPECT_DOUBLE_EQ(result.per_second(),
                   static_cast<double>(result.succeeded) / absl::ToDoubleSeconds(result.elapsed));
}

TEST(LoadTest, ErrorsAreCountedByCodeWithTheFirstMessage) {
  std::atomic<bool> stop = false;
  int call = 0;
  const Operation operation = [&]() -> absl::Status {
    if (++call == 5) stop = true;
    if (call % 2 == 1) return absl::OkStatus();
    return absl::UnavailableError(call == 2 ? "first" : "second");
  };
  LoadProgress progress;
  const LoadResult result = RunLoad({kLong}, {operation}, stop, &progress);
  EXPECT_EQ(result.succeeded, 3);
  ASSERT_EQ(result.errors.size(), 1u);
  const LoadErrors& errors = result.errors.at(absl::StatusCode::kUnavailable);
  EXPECT_EQ(errors.count, 2);
  EXPECT_EQ(errors.message, "first");
  EXPECT_LT(result.elapsed, kLong);
}

TEST(LoadTest, ARateMakesAsManyCallsAsAreDue) {
  const Operation operation = [] { return absl::OkStatus(); };
  const LoadResult result = RunAll({absl::Milliseconds(200), 100}, {operation, operation});
  EXPECT_EQ(result.succeeded + result.unsent, 20);  // at 0, 10, ... 190 ms
  EXPECT_GE(result.succeeded, 1);
}

TEST(LoadTest, WaitingForAWorkerCounts) {
  const Operation slow = [] {
    absl::SleepFor(absl::Milliseconds(40));
    return absl::OkStatus();
  };
  LoadResult result = RunAll({absl::Milliseconds(100), 100}, {slow});
  // Due at 0, 10 and 20 ms, begun at 0, 40 and 80: the third ends 100 ms after it was due.
  EXPECT_LE(result.succeeded, 3);
  EXPECT_EQ(result.unsent + result.succeeded, 10);
  if (result.succeeded == 3) {
    EXPECT_GE(result.Percentile(1), 0.1 - 1e-3);
  }
}

TEST(LoadTest, StopEndsAWaitForTheNextCall) {
  std::atomic<bool> stop = false;
  LoadProgress progress;
  std::thread stopper([&] {
    while (progress.succeeded == 0) std::this_thread::yield();
    stop = true;
  });
  const LoadResult result =
      RunLoad({kLong, 0.01}, {[] { return absl::OkStatus(); }}, stop, &progress);
  stopper.join();
  EXPECT_EQ(result.succeeded, 1);
  EXPECT_LT(result.elapsed, kLong - absl::Seconds(5));
}

TEST(LoadResultTest, PercentilesAreThoseOfTheNearestRank) {
  LoadResult result;
  EXPECT_EQ(result.Percentile(0.5), 0);
  for (int i = 100; i >= 1; --i) result.latencies.push_back(static_cast<float>(i));
  EXPECT_EQ(result.Percentile(0.5), 50);
  EXPECT_EQ(result.Percentile(0.99), 99);
  EXPECT_EQ(result.Percentile(0.999), 100);
  EXPECT_EQ(result.Percentile(0.001), 1);
}

TEST(LoadResultTest, AppendAddsUp) {
  LoadResult result;
  result.Append({.succeeded = 1,
                 .unsent = 2,
                 .elapsed = absl::Seconds(1),
                 .latencies = {1},
                 .errors = {{absl::StatusCode::kAborted, {1, "a"}}}});
  result.Append(
      {.succeeded = 3,
       .unsent = 4,
       .elapsed = absl::Seconds(1),
       .latencies = {2, 3},
       .errors = {{absl::StatusCode::kAborted, {5, "b"}}, {absl::StatusCode::kUnknown, {1, "c"}}}});
  EXPECT_EQ(result.succeeded, 4);
  EXPECT_EQ(result.unsent, 6);
  EXPECT_EQ(result.per_second(), 2);
  EXPECT_THAT(result.latencies, ElementsAre(1, 2, 3));
  EXPECT_EQ(result.errors[absl::StatusCode::kAborted].count, 6);
  EXPECT_EQ(result.errors[absl::StatusCode::kAborted].message, "a");
  EXPECT_EQ(result.errors[absl::StatusCode::kUnknown].message, "c");
}

}  // namespace
}  // namespace phasor::cli
