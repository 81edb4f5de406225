// SPDX-License-Identifier: Apache-2.0
// What an engine tells of the work it does, call by call and run by run, for histograms.
#ifndef PHASOR_SERVER_ENGINE_OBSERVER_H_
#define PHASOR_SERVER_ENGINE_OBSERVER_H_

#include <cstdint>

#include "absl/time/time.h"

namespace phasor::engine {

// One run of the backend: of one call, or of several together.
struct RunReport {
  int64_t calls = 0;
  int64_t jobs = 0;        // items of them that are computed
  int64_t bytes = 0;       // read and written
  absl::Duration gather;   // memory taken, payload copied to where it can be read, values checked
  absl::Duration compute;  // in the backend
};

// Threads: any, many at once. Called on the engine's path: no method may block.
class Observer {
 public:
  virtual ~Observer() = default;
  // A worker took a call that had waited so long.
  virtual void Taken(absl::Duration queued) = 0;
  virtual void Ran(const RunReport& run) = 0;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_OBSERVER_H_
