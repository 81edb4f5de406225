// SPDX-License-Identifier: Apache-2.0
// Compares counters of the engine.
#include "server/engine/load.h"

#include "server/engine/call.h"

namespace phasor::engine {

Load LoadBetween(const EngineStats& before, const EngineStats& now, int64_t most_bytes) {
  const int64_t jobs = now.jobs - before.jobs;
  const int64_t large_jobs = now.large_jobs - before.large_jobs;
  const int64_t large_bytes = now.large_bytes - before.large_bytes;
  const int64_t message_bytes = now.large_message_bytes - before.large_message_bytes;
  const int64_t inline_bytes = message_bytes + (large_bytes - message_bytes) / kHeldShare;
  if (jobs == 0) return Load::kNone;
  if (large_bytes <= jobs * kLargeRunBytes) return Load::kSmall;
  if (large_jobs == jobs && inline_bytes / jobs <= most_bytes) return Load::kLarge;
  return message_bytes <= jobs * kLargeRunBytes ? Load::kSmall : Load::kMixed;
}

}  // namespace phasor::engine
