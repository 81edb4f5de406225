// SPDX-License-Identifier: Apache-2.0
// The engine: admission by bytes, a queue that is fair between clients and honours deadlines and
// cancellation, workers that gather payloads and run the backend. For a backend that wants it
// (BatchPolicy), small calls that wait are run together; a call never waits for others to come.
// Knows nothing of gRPC or protobuf.
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

// Messages up to this are read before they are admitted.
inline constexpr int64_t kSmallMessageBytes = 16 << 10;

struct EngineOptions {
  // Threads that gather and compute. 0: one per core. Range [0, 1024].
  int workers = 0;
  // Bytes of requests in flight and of responses not yet freed before calls are refused. > 0.
  int64_t max_inflight_bytes = int64_t{4} << 30;
  // Calls that read and write up to this run inside Submit, unless they are to be brought together
  // with others; of PARITY arithmetic, up to a sixteenth of it. >= 0.
  int64_t inline_bytes = 1 << 20;
  // Plans kept. > 0.
  int64_t plan_cache_entries = 256;
  // Memory of finished large responses kept for reuse. >= 0.
  int64_t pool_bytes = int64_t{256} << 20;
  // Told of every run; must outlive the engine. nullptr: nobody.
  Observer* observer = nullptr;
};

// What the engine has done since it started, and what it holds now.
struct EngineStats {
  int64_t calls_inline = 0;
  int64_t calls_queued = 0;
  absl::Duration queue_time;  // of the queued calls that workers have taken, together
  // What workers took together, see BatchPolicy.
  int64_t batches = 0;
  // Why no more were taken; else because nobody else waited.
  int64_t batches_full = 0;        // of bytes
  int64_t batches_most_calls = 0;  // as many calls as may be in one
  int64_t batched_calls = 0;
  int64_t batched_bytes = 0;    // read and written
  int64_t jobs = 0;             // that the backend was given, in batches or not
  int64_t calls_refused = 0;    // over the byte budget, or draining
  int64_t calls_expired = 0;    // deadline passed in the queue, or before a large message was read
  int64_t calls_cancelled = 0;  // caller gone, the same
  int64_t inflight_bytes = 0;
  int64_t pooled_bytes = 0;  // of output memory that is kept for calls to come
  int64_t queued_calls = 0;
  int64_t waiting_calls = 0;    // for room in the byte budget
  int64_t waiting_readers = 0;  // for room to read
  int64_t plan_cache_hits = 0;
  int64_t plan_cache_misses = 0;
};

// Threads: all methods may be called from any thread. Owns its workers; the destructor drains.
class Engine {
 public:
  // `backend` and `clock` must outlive the engine.
  Engine(const EngineOptions& options, Backend* backend, Clock* clock);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The plan of `spec`, compiled once and kept. Errors are CompilePlan's and are not kept.
  absl::StatusOr<std::shared_ptr<const Plan>> GetPlan(const ResolvedSpec& spec);

  // Takes the call. Calls Done exactly once: with UNAVAILABLE when the byte budget is spent, memory
  // is short or the engine drains, RESOURCE_EXHAUSTED when the call costs more than the whole
  // budget, DEADLINE_EXCEEDED within 10 ms of a deadline that passes in the queue, CANCELLED when
  // the caller went away in the queue, the backend's error when the device failed, else with a
  // result. A call that waits for room is admitted, clients in turns, within 5 ms of there being
  // room; its deadline and its caller are watched as in the queue. Done may run inside Submit, on a
  // worker or on the thread that watches deadlines.
  void Submit(std::unique_ptr<Call> call);

  // What a message must pass before it is read, which takes time in proportion to its `bytes`: its
  // caller is there, its deadline has not passed, and there is room for the bytes. CANCELLED,
  // DEADLINE_EXCEEDED; UNAVAILABLE, RESOURCE_EXHAUSTED as in Submit. Let go of the permit before
  // Submit, which takes room for the whole call. Small messages pass without a look, since they
  // take less time than it: their permit is empty.
  using Question = absl::FunctionRef<bool()>;
  absl::StatusOr<Permit> MayParse(int64_t bytes, absl::Time deadline, Question cancelled);

  // Takes bytes of the budget for what outlives a call. UNAVAILABLE, RESOURCE_EXHAUSTED as in
  // Submit.
  absl::StatusOr<Permit> Reserve(int64_t bytes);

  // Whether `reader` may read a message of about `bytes` >= 0 now, see ReadGate. Else its Read is
  // called within 5 ms of there being room, or when the engine drains.
  bool MayRead(std::weak_ptr<Reader> reader, int64_t bytes);

  // A new byte budget, for calls that come or wait from now on; > 0. Those admitted stay so.
  void SetMaxInflightBytes(int64_t bytes);

  // Refuses new calls from now on and waits until those in flight are done or `deadline` passes.
  // True when nothing is left.
  bool Drain(absl::Time deadline);

  EngineStats stats() const;
  Backend* backend() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_ENGINE_H_
