// SPDX-License-Identifier: Apache-2.0
// Runs an operation on many threads, at a fixed rate or as fast as possible, and records the
// latencies.
#include "client/cli/load.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/steady_time.h"

namespace phasor::cli {
namespace {

constexpr int64_t kMaxSamples = int64_t{1} << 20;
// Longest sleep of a waiting worker before it looks at `stop` again.
constexpr absl::Duration kNap = absl::Milliseconds(50);

// One worker's part of the result.
class Tally {
 public:
  explicit Tally(uint32_t seed) : random_(seed) {}

  void Add(const absl::Status& status, absl::Duration latency) {
    if (!status.ok()) {
      LoadErrors& errors = result_.errors[status.code()];
      if (errors.count++ == 0) errors.message = std::string(status.message());
      return;
    }
    const auto seconds = static_cast<float>(absl::ToDoubleSeconds(latency));
    ++result_.succeeded;
    if (result_.succeeded <= kMaxSamples) {
      result_.latencies.push_back(seconds);
      return;
    }
    const int64_t place = std::uniform_int_distribution<int64_t>(0, result_.succeeded - 1)(random_);
    if (place < kMaxSamples) result_.latencies[static_cast<size_t>(place)] = seconds;
  }

  LoadResult Take() { return std::move(result_); }

 private:
  std::minstd_rand random_;
  LoadResult result_;
};

// When operations are due.
class Schedule {
 public:
  Schedule(const LoadOptions& options, absl::Time start)
      : start_(start), end_(start + options.duration), rate_(options.rate) {}

  absl::Time end() const { return end_; }

  // The time at which the next operation is due. Without a rate, this is `now`.
  absl::Time Next(absl::Time now) {
    if (rate_ == 0) return now;
    return DueAt(next_.fetch_add(1));
  }

  // The number of operations that were due by `now`, or by the end, and were never asked for by
  // Next.
  int64_t Unsent(absl::Time now) const {
    if (rate_ == 0) return 0;
    const double due = absl::ToDoubleSeconds(std::min(now, end_) - start_) * rate_;
    return std::max<int64_t>(0, static_cast<int64_t>(std::ceil(due)) - next_.load());
  }

 private:
  absl::Time DueAt(int64_t i) const {
    return start_ + absl::Seconds(static_cast<double>(i) / rate_);
  }

  const absl::Time start_;
  const absl::Time end_;
  const double rate_;
  std::atomic<int64_t> next_ = 0;
};

void SleepUntil(absl::Time time, const std::atomic<bool>& stop) {
  for (absl::Time now = SteadyNow(); now < time && !stop; now = SteadyNow()) {
    absl::SleepFor(std::min(time - now, kNap));
  }
}

LoadResult Work(const Operation& operation, Schedule& schedule, uint32_t seed,
                const std::atomic<bool>& stop, LoadProgress* progress) {
  Tally tally(seed);
  while (!stop && SteadyNow() < schedule.end()) {
    const absl::Time due = schedule.Next(SteadyNow());
    if (due >= schedule.end()) break;
    SleepUntil(due, stop);
    if (stop) break;
    const absl::Status status = operation();
    tally.Add(status, SteadyNow() - due);
    ++(status.ok() ? progress->succeeded : progress->failed);
  }
  return tally.Take();
}

}  // namespace

void LoadResult::Append(LoadResult later) {
  succeeded += later.succeeded;
  unsent += later.unsent;
  elapsed += later.elapsed;
  latencies.insert(latencies.end(), later.latencies.begin(), later.latencies.end());
  for (auto& [code, more] : later.errors) {
    LoadErrors& sum = errors[code];
    if (sum.count == 0) sum.message = std::move(more.message);
    sum.count += more.count;
  }
}

double LoadResult::per_second() const {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds > 0 ? static_cast<double>(succeeded) / seconds : 0;
}

double LoadResult::Percentile(double q) {
  if (latencies.empty()) return 0;
  std::sort(latencies.begin(), latencies.end());
  const auto rank = static_cast<int64_t>(std::ceil(q * static_cast<double>(latencies.size())));
  return latencies[static_cast<size_t>(std::max<int64_t>(rank, 1) - 1)];
}

LoadResult RunLoad(const LoadOptions& options, const std::vector<Operation>& workers,
                   const std::atomic<bool>& stop, LoadProgress* progress) {
  const absl::Time start = SteadyNow();
  Schedule schedule(options, start);
  std::vector<LoadResult> parts(workers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      parts[i] = Work(workers[i], schedule, static_cast<uint32_t>(i + 1), stop, progress);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const absl::Time end = SteadyNow();
  LoadResult result;
  for (LoadResult& part : parts) result.Append(std::move(part));
  result.elapsed = end - start;
  result.unsent = schedule.Unsent(end);
  return result;
}

}  // namespace phasor::cli
