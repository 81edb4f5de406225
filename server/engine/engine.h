// SPDX-License-Identifier: Apache-2.0
// The engine: admission by bytes; a queue that is fair between clients and respects deadlines and
// cancellation; workers that gather payloads and run the backend. If the backend wants it
// (BatchPolicy), small calls that wait are run together, but no call waits for others to arrive.
// Uses neither gRPC nor protobuf.
#ifndef PHASOR_SERVER_ENGINE_ENGINE_H_
#define PHASOR_SERVER_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend/backend.h"
#include "kernels/plan/plan.h"
#include "server/base/admission.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/engine/call.h"
#include "server/engine/observer.h"
#include "server/engine/read_gate.h"

namespace phasor::engine {

// Messages up to this size are read before they are admitted.
inline constexpr int64_t kSmallMessageBytes = 16 << 10;

// Runs that read and write more bytes are large: their bytes take the time, not their calls.
inline constexpr int64_t kLargeRunBytes = 256 << 10;

// Threads and limits of an engine.
struct EngineOptions {
  // Threads that gather and compute, in [0, 1024]. 0: as many as UsableCores.
  int workers = 0;
  // Bytes of requests in flight and of responses not yet freed, > 0. Calls beyond it are refused.
  int64_t max_inflight_bytes = int64_t{4} << 30;
  // Calls that read and write at most this many bytes run inside Submit, unless they are to run
  // together with others. Bytes of shared memory count a quarter (kHeldShare), but wholly in calls
  // with slow items (IsSlow), which use 1/16 of the limit. >= 0.
  int64_t inline_bytes = 1 << 20;
  // Memory of the plans that are cached. >= 0.
  int64_t plan_cache_bytes = int64_t{64} << 20;
  // Memory of finished large responses that is kept for reuse. >= 0.
  int64_t pool_bytes = int64_t{256} << 20;
  // Is told about every run; must outlive the engine. nullptr: none.
  Observer* observer = nullptr;
};

// What the engine has done since it started, and its current state.
struct EngineStats {
  int64_t calls_inline = 0;
  int64_t calls_queued = 0;
  // Batches of calls that ran together; see BatchPolicy.
  int64_t batches = 0;
  // Why a batch took no more calls: a limit was reached. Otherwise no more calls waited.
  int64_t batches_full = 0;        // the limit on bytes
  int64_t batches_most_calls = 0;  // the limit on calls
  int64_t batched_calls = 0;
  int64_t jobs = 0;                 // given to the backend, in batches or alone
  int64_t large_jobs = 0;           // in large runs
  int64_t large_bytes = 0;          // read and written by large runs
  int64_t large_message_bytes = 0;  // of these, in messages and copies
  int64_t calls_refused = 0;        // over the byte budget, or while draining
  int64_t calls_expired = 0;    // deadline passed in the queue or before a large message was read
  int64_t calls_cancelled = 0;  // caller gone, likewise
  int64_t inflight_bytes = 0;
  int64_t pooled_bytes = 0;  // memory of outputs that is kept for reuse
  int64_t queued_calls = 0;
  int64_t waiting_calls = 0;    // calls that wait for room in the byte budget
  int64_t waiting_readers = 0;  // streams that wait for room to read
  int64_t plan_cache_hits = 0;
  int64_t plan_cache_misses = 0;
  int64_t plan_cache_bytes = 0;
};

// Runs calls on a backend. Owns its workers; the destructor drains. Threads: any thread may call
// any method.
class Engine {
 public:
  // `backend` and `clock` must outlive the engine.
  Engine(const EngineOptions& options, Backend* backend, Clock* clock);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The plan of `spec`, compiled once and cached. Errors are CompilePlan's and are not cached.
  absl::StatusOr<std::shared_ptr<const Plan>> GetPlan(const ResolvedSpec& spec);

  // Counts plans that the caller still had from GetPlan as found in the cache.
  void CountPlanHits(int64_t plans);

  // Takes a call and calls its Done exactly once, inside Submit, on a worker, or on the thread that
  // watches deadlines. Done receives the result, or one of these errors:
  //   UNAVAILABLE: the byte budget is used up, memory is short or the engine drains;
  //   RESOURCE_EXHAUSTED: the call costs more than the whole budget;
  //   DEADLINE_EXCEEDED: within 10 ms of a deadline that passes in the queue;
  //   CANCELLED: the caller went away while the call was in the queue;
  //   the backend's error: the device failed.
  // A call that waits for room is admitted within 5 ms of there being room; clients take turns.
  // While it waits, its deadline and caller are watched as in the queue.
  void Submit(std::unique_ptr<Call> call);

  // Checks a message before it is read, because reading takes time in proportion to `bytes`: its
  // caller must be there, its deadline not passed, and there must be room. CANCELLED,
  // DEADLINE_EXCEEDED; UNAVAILABLE and RESOURCE_EXHAUSTED as in Submit. The same for an answer that
  // no Submit makes, before it is sent; keep its permit until then.
  // Release the permit before Submit, which reserves room for the whole call. Small messages pass
  // without a check, because reading them takes less time than the check. Their permit is empty.
  using Question = absl::FunctionRef<bool()>;
  absl::StatusOr<Permit> MayParse(int64_t bytes, absl::Time deadline, Question cancelled);

  // Reserves bytes of the budget for something that outlives a call. UNAVAILABLE and
  // RESOURCE_EXHAUSTED as in Submit.
  absl::StatusOr<Permit> Reserve(int64_t bytes);

  // Whether `reader` may read a message of about `bytes` >= 0 now; see ReadGate. If not, its Read
  // is called within 5 ms of there being room, or when the engine drains.
  bool MayRead(std::weak_ptr<Reader> reader, int64_t bytes);

  // Sets EngineOptions::inline_bytes for calls that come from now on.
  void SetInlineBytes(int64_t bytes);

  // Sets a new byte budget > 0 for calls that arrive or wait from now on. Admitted calls stay
  // admitted.
  void SetMaxInflightBytes(int64_t bytes);

  // Refuses new calls from now on, and waits until those in flight are done or `deadline` passes.
  // Returns true if none is left.
  bool Drain(absl::Time deadline);

  EngineStats stats() const;
  Backend* backend() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_ENGINE_H_
