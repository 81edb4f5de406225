// SPDX-License-Identifier: Apache-2.0
// Compares counters of the engine.
#include "server/engine/load.h"

namespace phasor::engine {

Load LoadBetween(const EngineStats& before, const EngineStats& now, int64_t most_bytes) {
  const int64_t jobs = now.jobs - before.jobs;
  const int64_t large_jobs = now.large_jobs - before.large_jobs;
  const int64_t large_bytes = now.large_bytes - before.large_bytes;
  if (jobs == 0) return Load::kNone;
  if (large_bytes <= jobs * kLargeRunBytes) return Load::kSmall;
  return large_jobs == jobs && large_bytes / jobs <= most_bytes ? Load::kLarge : Load::kMixed;
}

}  // namespace phasor::engine
