// SPDX-License-Identifier: Apache-2.0
// A load generator: the same operation again and again, as often as it can be done or at given
// times, and how long each took.
#ifndef PHASOR_CLIENT_CLI_LOAD_H_
#define PHASOR_CLIENT_CLI_LOAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace phasor::cli {

// What one worker does, one call at a time.
using Operation = std::function<absl::Status()>;

struct LoadOptions {
  absl::Duration duration;  // no operation begins after it
  // Operations per second of all workers together, equally spaced. An operation that finds every
  // worker busy waits for one, and this wait counts as its latency. 0: each worker begins as soon
  // as it is done.
  double rate = 0;
};

// Operations with one status code other than OK.
struct LoadErrors {
  int64_t count = 0;
  std::string message;  // of the first
};

struct LoadResult {
  int64_t succeeded = 0;
  int64_t unsent = 0;  // with a rate: due within the duration, and no worker was free
  absl::Duration elapsed;
  // Seconds, of operations that succeeded; a random sample when they were more than 2^20 a worker.
  std::vector<float> latencies;
  std::map<absl::StatusCode, LoadErrors> errors;

  // Adds what ran after this.
  void Append(LoadResult later);
  double per_second() const;
  // Latency that the fraction `q` of the operations did not exceed; 0: none succeeded. Sorts.
  double Percentile(double q);
};

// For a display while a load runs. Threads: any.
struct LoadProgress {
  std::atomic<int64_t> succeeded = 0;
  std::atomic<int64_t> failed = 0;
};

// Runs one thread per worker until the duration is over or `stop` is true. `progress` is counted
// up.
LoadResult RunLoad(const LoadOptions& options, const std::vector<Operation>& workers,
                   const std::atomic<bool>& stop, LoadProgress* progress);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_LOAD_H_
