// SPDX-License-Identifier: Apache-2.0
// The interface of backends, which run jobs. All backends return the same bytes (docs/numerics.md).
#ifndef PHASOR_KERNELS_BACKEND_BACKEND_H_
#define PHASOR_KERNELS_BACKEND_BACKEND_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend/batch.h"
#include "kernels/backend/device_list.h"

namespace phasor {

// Which calls to batch for a backend: those that read and write at least least_bytes and less than
// `bytes` in total.
struct BatchPolicy {
  // The most bytes of one Run when several such calls wait. 0: a Run has no fixed cost, so every
  // call runs on its own.
  int64_t bytes = 0;
  // Smaller calls run on their own at once, because the backend does not send them to the device.
  int64_t least_bytes = 0;
  // How many Runs of such calls the backend can use at a time; > 0. While `early_runs` of them run,
  // another begins only when it has `bytes` together; until then calls gather.
  int runs = 1;
  // So many Runs begin with however few bytes; in [1, runs]. One for each device.
  int early_runs = 1;
};

// The outcome of one job.
struct JobResult {
  absl::Status status;
  std::string_view backend;  // computed it, or its last rows; lives as long as the backend
  bool intact = false;       // on an error: what the job was to overwrite is unchanged
};

// Runs jobs. Threads: Run and RunEach may be called from any number of threads at once.
class Backend {
 public:
  virtual ~Backend() = default;
  // "cpu", "cuda" or "reference".
  virtual std::string_view name() const = 0;
  // The instruction set or device that it uses, e.g. "AVX2".
  virtual std::string target() const = 0;
  // The threads that a job may use, including the caller's.
  virtual int threads() const = 0;
  // May change to {} when the device that made batches worthwhile is gone.
  virtual BatchPolicy batch_policy() const { return {}; }
  // Runs the jobs in order and returns when their outputs are written. Jobs must be valid, as
  // kernels/request/request.h makes them; an error means that the device failed.
  virtual absl::Status Run(absl::Span<const Job> jobs) = 0;
  // Like Run, but gives the outcome of each job. `results` must be as many as `jobs`.
  virtual void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) {
    const absl::Status ran = Run(jobs);
    for (JobResult& result : results) result = {ran, name(), /*intact=*/false};
  }
  // The devices whose memory jobs may use, in the order of their numbers; empty: none, and the
  // backend runs all jobs itself. They live as long as the backend.
  virtual DeviceList devices() { return DeviceList(); }
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKEND_BACKEND_H_
