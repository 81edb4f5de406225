// SPDX-License-Identifier: Apache-2.0
// A backend runs jobs. All backends return the same bytes (docs/numerics.md).
#ifndef PHASOR_KERNELS_BACKEND_BACKEND_H_
#define PHASOR_KERNELS_BACKEND_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend/batch.h"
#include "kernels/backend/device_port.h"

namespace phasor {

// Which calls should be brought together for a backend: those of [least_bytes, bytes), read and
// written.
struct BatchPolicy {
  // Bytes that one Run should do at most where several such calls wait. 0: a Run costs nothing of
  // its own, so every call is run by itself.
  int64_t bytes = 0;
  // Smaller calls are run by themselves at once: the backend does them without what makes a Run
  // dear.
  int64_t least_bytes = 0;
  // Runs of such calls at a time that the backend can make use of. A second one begins while the
  // first goes on only when it has its bytes together; calls gather until then. > 0.
  int runs = 1;
};

// What became of the jobs that a backend with a device was given, since it was made.
struct DeviceCounts {
  bool usable = true;               // false: it is lost, and everything runs on the CPU
  int64_t jobs = 0;                 // that it computed, wholly
  int64_t jobs_not_for_it = 0;      // the CPU computed: small, not supported, or it is not usable
  int64_t jobs_that_it_failed = 0;  // begun on it, computed by the CPU
  int64_t jobs_sooner_on_cpu = 0;   // the CPU computed: by the rates that were measured
};

// What came of a job.
struct JobResult {
  absl::Status status;
  std::string_view backend;  // that computed it, or its last rows; lives as long as the backend
  bool intact = false;       // on an error: what the job was to overwrite is what it was
};

// Threads: Run and RunEach may be called from any number of threads at once.
class Backend {
 public:
  virtual ~Backend() = default;
  // "cpu", "cuda" or "reference".
  virtual std::string_view name() const = 0;
  // What the backend dispatched to, e.g. "AVX2".
  virtual std::string target() const = 0;
  // Threads that a job may use, the caller's included.
  virtual int threads() const = 0;
  // May change to none, when what made it want batches is gone.
  virtual BatchPolicy batch_policy() const { return {}; }
  // Runs the jobs in order and returns when their outputs are written. Jobs are valid by
  // construction; an error means that the device failed.
  virtual absl::Status Run(absl::Span<const Job> jobs) = 0;
  // The same, and says of every job what came of it; `results` are as many.
  virtual void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) {
    const absl::Status ran = Run(jobs);
    for (JobResult& result : results) result = {ran, name(), /*intact=*/false};
  }
  // The backend's device, whose memory jobs may name; nullptr: none. Lives as long as the backend.
  virtual DevicePort* device_port() { return nullptr; }
  // Nothing: it has no device, and all jobs are its own.
  virtual std::optional<DeviceCounts> device_counts() const { return std::nullopt; }
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKEND_BACKEND_H_
