// SPDX-License-Identifier: Apache-2.0
// Phases: when the steps of a call began, for traces.
#ifndef PHASOR_SERVER_ENGINE_PHASES_H_
#define PHASOR_SERVER_ENGINE_PHASES_H_

#include <chrono>

namespace phasor::engine {

// Times of one call, in this order. A time that is not set: the call did not come so far.
struct Phases {
  using Tick = std::chrono::steady_clock::time_point;
  Tick submitted = {};  // it was checked; from here on it waits for a worker
  Tick started = {};    // a worker took it, or the thread that received it; payload is gathered
  Tick gathered = {};   // the backend computes
  Tick computed = {};   // the backend is done; memory of the caller is written or checked
  Tick stored = {};     // that is done; not set if there was nothing to do
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_PHASES_H_
