// SPDX-License-Identifier: Apache-2.0
// Observer: what an engine reports about its calls and runs, for histograms.
#ifndef PHASOR_SERVER_ENGINE_OBSERVER_H_
#define PHASOR_SERVER_ENGINE_OBSERVER_H_

#include <cstdint>

#include "absl/time/time.h"

namespace phasor::engine {

// One run of the backend, for one call or for several together.
struct RunReport {
  int64_t calls = 0;
  int64_t jobs = 0;        // items of these calls that are computed
  int64_t bytes = 0;       // read and written
  absl::Duration gather;   // to get memory, copy payloads where needed, and check values
  absl::Duration compute;  // in the backend
};

// Receives reports of an engine. Called on the path of calls, so no method may block. Threads: many
// at once.
class Observer {
 public:
  virtual ~Observer() = default;
  // A worker took a call that had waited for `queued`.
  virtual void Taken(absl::Duration queued) = 0;
  virtual void Ran(const RunReport& run) = 0;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_OBSERVER_H_
