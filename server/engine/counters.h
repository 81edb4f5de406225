// SPDX-License-Identifier: Apache-2.0
// Counters: what an engine counts of calls, but for small ones that succeed.
#ifndef PHASOR_SERVER_ENGINE_COUNTERS_H_
#define PHASOR_SERVER_ENGINE_COUNTERS_H_

#include <atomic>
#include <cstdint>

#include "server/engine/engine.h"

namespace phasor::engine {

// As the fields of EngineStats. Threads: any.
struct Counters {
  std::atomic<int64_t> calls_queued = 0;
  std::atomic<int64_t> calls_refused = 0;
  std::atomic<int64_t> calls_expired = 0;
  std::atomic<int64_t> calls_cancelled = 0;
  std::atomic<int64_t> large_jobs = 0;
  std::atomic<int64_t> large_bytes = 0;
  std::atomic<int64_t> large_message_bytes = 0;

  // `jobs` jobs read and wrote `bytes`, of which `message_bytes` were in messages.
  void CountLargeRun(int64_t jobs, int64_t bytes, int64_t message_bytes) {
    large_jobs.fetch_add(jobs, std::memory_order_relaxed);
    large_bytes.fetch_add(bytes, std::memory_order_relaxed);
    large_message_bytes.fetch_add(message_bytes, std::memory_order_relaxed);
  }

  void CopyTo(EngineStats* stats) const {
    stats->calls_queued = calls_queued.load(std::memory_order_relaxed);
    stats->calls_refused = calls_refused.load(std::memory_order_relaxed);
    stats->calls_expired = calls_expired.load(std::memory_order_relaxed);
    stats->calls_cancelled = calls_cancelled.load(std::memory_order_relaxed);
    stats->large_jobs = large_jobs.load(std::memory_order_relaxed);
    stats->large_bytes = large_bytes.load(std::memory_order_relaxed);
    stats->large_message_bytes = large_message_bytes.load(std::memory_order_relaxed);
  }
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_COUNTERS_H_
