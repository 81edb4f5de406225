// SPDX-License-Identifier: Apache-2.0
// A load generator: repeats an operation as often as possible or at given times, and records how
// long each took.
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

// What a worker repeats, one call at a time.
using Operation = std::function<absl::Status()>;

struct LoadOptions {
  absl::Duration duration;  // no operation begins after this time
  // Operations per second of all workers together, equally spaced. If all workers are busy, the
  // operation waits, and the wait counts as latency. 0: each worker starts again as soon as it is
  // done.
  double rate = 0;
};

// The operations that failed with one status code.
struct LoadErrors {
  int64_t count = 0;
  std::string message;  // of the first one
};

// The result of a load, or of several in sequence.
struct LoadResult {
  int64_t succeeded = 0;
  int64_t unsent = 0;  // with a rate: operations that were due but found no free worker
  absl::Duration elapsed;
  // Seconds, of the operations that succeeded. A random sample if a worker had more than 2^20.
  std::vector<float> latencies;
  std::map<absl::StatusCode, LoadErrors> errors;

  // Adds the result of a run that came after this one.
  void Append(LoadResult later);
  double per_second() const;
  // The latency that the fraction `q` of the operations did not exceed; 0 if none succeeded. Sorts
  // the latencies.
  double Percentile(double q);
};

// Counters that a display reads while a load runs. Threads: any.
struct LoadProgress {
  std::atomic<int64_t> succeeded = 0;
  std::atomic<int64_t> failed = 0;
};

// Runs one thread per worker until the duration is over or `stop` is true. Counts in `progress`
// meanwhile.
LoadResult RunLoad(const LoadOptions& options, const std::vector<Operation>& workers,
                   const std::atomic<bool>& stop, LoadProgress* progress);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_LOAD_H_
