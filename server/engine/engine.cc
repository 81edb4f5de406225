// SPDX-License-Identifier: Apache-2.0
// Submit admits a call and runs or queues it. Workers take calls in order: one, or several that the
// backend wants together when it has room for such a run. One more thread answers calls whose
// deadline has passed or whose caller is gone, admits waiting calls, and then lets streams read.
#include "server/engine/engine.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "kernels/base/cores.h"
#include "server/base/admission.h"
#include "server/base/mutex.h"
#include "server/engine/call_queue.h"
#include "server/engine/counters.h"
#include "server/engine/plan_cache.h"
#include "server/engine/run_call.h"

namespace phasor::engine {
namespace {

// How often the queues are searched for calls whose caller is gone.
constexpr absl::Duration kSweepPeriod = absl::Milliseconds(50);
// How often waiting calls look for room. A look is cheap, and the budget holds far more bytes than
// calls free in this time, so no notification is needed.
constexpr absl::Duration kRoomPeriod = absl::Milliseconds(5);
// Most calls in a batch: they are staged and answered one after another.
constexpr size_t kMaxBatchCalls = 256;
constexpr char kCallerLeft[] = "server: cancelled by the caller";

// Calls of one run of the backend.
struct Batch {
  absl::InlinedVector<AdmittedCall, 1> calls;
  bool gathers = false;  // a run during which other calls gather
};

// Returns `status` and counts it in `count`.
absl::Status Counted(std::atomic<int64_t>* count, absl::Status status) {
  count->fetch_add(1, std::memory_order_relaxed);
  return status;
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, Backend* backend, Clock* clock)
      : options_(options),
        backend_(*backend),
        policy_(backend->batch_policy()),
        clock_(*clock),
        inline_bytes_(options.inline_bytes),
        plans_(options.plan_cache_bytes),
        admission_(options.max_inflight_bytes),
        gate_(&admission_),
        // Half of the room: calls admitted later bring their request before they take pool memory.
        pool_(options.pool_bytes, [this] { return admission_.room_bytes() / 2; }) {
    const int workers = options.workers > 0 ? options.workers : UsableCores();
    threads_.reserve(workers + 1);
    for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { Work(); });
    threads_.emplace_back([this] { Watch(); });
  }

  ~Impl() {
    Drain(absl::InfiniteFuture());
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      queue_changed_.SignalAll();
      watch_changed_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  PlanCache& plans() { return plans_; }
  Backend* backend() { return &backend_; }

  void Submit(std::unique_ptr<Call> call) {
    absl::StatusOr<Permit> permit = admission_.Take(call->cost_bytes);
    if (call->waits_for_room && WaitsForRoom(call, permit)) return;
    const bool gathers = Gathers(*call);
    bool run_here = IsSmall(*call);
    absl::Status status = permit.ok() ? Enter(gathers, &run_here) : std::move(permit).status();
    if (!status.ok()) return call->Done(Counted(&counters_.calls_refused, std::move(status)));
    AdmittedCall admitted{std::move(call), *std::move(permit)};
    admitted.call->Admitted();
    if (run_here) {
      inline_.fetch_add(1, std::memory_order_relaxed);
      Batch batch{.gathers = gathers};
      batch.calls.push_back(std::move(admitted));
      Run(std::move(batch));
    } else {
      counters_.calls_queued.fetch_add(1, std::memory_order_relaxed);
      Enqueue(std::move(admitted));
    }
  }

  absl::StatusOr<Permit> MayParse(int64_t bytes, absl::Time deadline, Question cancelled) {
    if (bytes <= kSmallMessageBytes) return Permit();
    if (cancelled()) return Counted(&counters_.calls_cancelled, absl::CancelledError(kCallerLeft));
    if (deadline <= clock_.Now()) {
      return Counted(&counters_.calls_expired,
                     absl::DeadlineExceededError("deadline: passed unread; allow more"));
    }
    absl::StatusOr<Permit> permit = admission_.Take(bytes);
    if (!permit.ok()) return Counted(&counters_.calls_refused, std::move(permit).status());
    return permit;
  }

  absl::StatusOr<Permit> Reserve(int64_t bytes) { return admission_.Take(bytes); }

  bool MayRead(std::weak_ptr<Reader> reader, int64_t bytes) {
    if (gate_.MayRead(std::move(reader), bytes)) return true;
    MutexLock lock(&mu_);
    watch_changed_.Signal();
    return false;
  }

  void SetInlineBytes(int64_t bytes) { inline_bytes_.store(bytes, std::memory_order_relaxed); }

  void SetMaxInflightBytes(int64_t bytes) {
    admission_.SetLimit(bytes);
    MutexLock lock(&mu_);
    watch_changed_.Signal();
  }

  bool Drain(absl::Time deadline) {
    {
      MutexLock lock(&mu_);
      draining_ = true;
    }
    gate_.Open();
    MutexLock lock(&mu_);
    while (calls_ > 0 && clock_.Now() < deadline) clock_.Wait(&all_left_, &mu_, deadline);
    return calls_ == 0;
  }

  EngineStats stats() {
    MutexLock lock(&mu_);
    EngineStats stats = stats_;
    counters_.CopyTo(&stats);
    stats.calls_inline = inline_.load(std::memory_order_relaxed);
    stats.jobs = jobs_.load(std::memory_order_relaxed);
    stats.inflight_bytes = admission_.taken_bytes();
    stats.pooled_bytes = pool_.kept_bytes();
    stats.plan_cache_hits = plans_.hits();
    stats.plan_cache_misses = plans_.misses();
    stats.plan_cache_bytes = plans_.bytes();
    stats.queued_calls = queue_.size() + gathering_.size();
    stats.waiting_calls = waiting_.size();
    stats.waiting_readers = gate_.waiting();
    return stats;
  }

 private:
  // Whether the thread that received the call may run it.
  bool IsSmall(const Call& call) const {
    const int64_t limit = inline_bytes_.load(std::memory_order_relaxed);
    if (call.work_bytes() <= limit / kSlowFactor) return true;
    return call.inline_bytes() <= limit &&
           std::none_of(call.items.begin(), call.items.end(), IsSlow);
  }

  // Whether the backend wants this call to run together with others.
  bool Gathers(const Call& call) const {
    const BatchPolicy policy = backend_.batch_policy();
    return policy.least_bytes <= call.work_bytes() && call.work_bytes() < policy.bytes;
  }

  // Whether the gathered calls should run now: few such runs are in progress, or there are enough
  // calls for another one.
  bool MayRunGathered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (gathering_.size() == 0) return false;
    return runs_ < policy_.early_runs ||
           (runs_ < policy_.runs && gathering_.work_bytes() >= policy_.bytes);
  }

  // Counts a call, unless the engine drains. A gathering call that was to run here begins a run, or
  // clears `run_here` if it must wait.
  absl::Status Enter(bool gathers, bool* run_here) {
    MutexLock lock(&mu_);
    if (draining_) return absl::UnavailableError("server: draining; try another one");
    ++calls_;
    if (gathers && *run_here) {
      *run_here = runs_ < policy_.early_runs && gathering_.size() == 0;
      runs_ += *run_here;
    }
    return absl::OkStatus();
  }

  // Ends a run during which other calls gathered.
  void EndRun() {
    MutexLock lock(&mu_);
    --runs_;
    if (MayRunGathered()) queue_changed_.Signal();
  }

  void Leave() {
    MutexLock lock(&mu_);
    if (--calls_ == 0) all_left_.SignalAll();
  }

  // Takes the call if it must wait: there is no room, or other calls already wait.
  bool WaitsForRoom(std::unique_ptr<Call>& call, absl::StatusOr<Permit>& permit) {
    const uint64_t client = call->client();
    MutexLock lock(&mu_);
    const bool full = absl::IsUnavailable(permit.status());
    if (draining_ || !(full || (permit.ok() && waiting_.size() > 0))) return false;
    if (permit.ok()) *permit = Permit();
    ++calls_;
    Permit held = admission_.Hold(call->received_bytes);
    waiting_.Push({std::move(call), std::move(held), client});
    if (waiting_.size() == 1) watch_changed_.Signal();
    return true;
  }

  // Moves calls for which there is room to the queue, in order.
  void AdmitWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (waiting_.size() > 0) {
      const Call& next = waiting_.front();
      absl::StatusOr<Permit> permit = admission_.Take(next.cost_bytes, next.received_bytes);
      if (absl::IsResourceExhausted(permit.status())) {  // the budget was lowered
        AdmittedCall refused = waiting_.Pop();
        mu_.Unlock();
        Answer(std::move(refused), Counted(&counters_.calls_refused, std::move(permit).status()));
        mu_.Lock();
        continue;
      }
      if (!permit.ok()) return;
      AdmittedCall admitted{waiting_.Pop().call, *std::move(permit)};
      counters_.calls_queued.fetch_add(1, std::memory_order_relaxed);
      mu_.Unlock();
      admitted.call->Admitted();
      Enqueue(std::move(admitted));
      mu_.Lock();
    }
  }

  // Lets streams read. Called after AdmitWaiting: waiting calls came first.
  void LetRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    mu_.Unlock();
    gate_.Look();
    mu_.Lock();
  }

  void Enqueue(AdmittedCall admitted) {
    admitted.client = admitted.call->client();
    admitted.queued_at = clock_.Now();
    const bool gathers = Gathers(*admitted.call);
    MutexLock lock(&mu_);
    const absl::Time look = std::min(admitted.call->deadline, admitted.queued_at + kSweepPeriod);
    (gathers ? gathering_ : queue_).Push(std::move(admitted));
    queue_changed_.Signal();
    if (look < watch_sleeps_until_) watch_changed_.Signal();
  }

  // The main function of a worker.
  void Work() {
    while (true) {
      Batch batch = NextBatch();
      if (batch.calls.empty()) return;
      AnswerLeavers(&batch);
      if (!batch.calls.empty()) {
        Run(std::move(batch));
      } else if (batch.gathers) {
        EndRun();
      }
    }
  }

  // Waits for calls to run. Returns none if the engine stops.
  Batch NextBatch() {
    MutexLock lock(&mu_);
    while (!stopping_ && queue_.size() == 0 && !MayRunGathered()) queue_changed_.Wait(&mu_);
    Batch batch;
    // Alternate, so that neither kind of call waits for ever.
    batch.gathers = MayRunGathered() && (queue_.size() == 0 || !gathered_last_);
    gathered_last_ = batch.gathers;
    if (batch.gathers) {
      TakeGathered(&batch);
    } else if (queue_.size() > 0) {
      batch.calls.push_back(queue_.Pop());
    }
    if (options_.observer != nullptr) {
      const absl::Time now = clock_.Now();
      for (const AdmittedCall& call : batch.calls) options_.observer->Taken(now - call.queued_at);
    }
    // This worker may have taken another call than the one that it was woken for.
    if (queue_.size() > 0 || MayRunGathered()) queue_changed_.Signal();
    return batch;
  }

  // Begins a run with as many gathered calls as fit into it.
  void TakeGathered(Batch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++runs_;
    ++stats_.batches;
    int64_t bytes = 0;
    while (gathering_.size() > 0) {
      const int64_t more = gathering_.front().work_bytes();
      if (batch->calls.size() == kMaxBatchCalls) {
        ++stats_.batches_most_calls;
        break;
      }
      if (!batch->calls.empty() && more > policy_.bytes - bytes) {
        ++stats_.batches_full;
        break;
      }
      bytes += more;
      batch->calls.push_back(gathering_.Pop());
    }
    stats_.batched_calls += static_cast<int64_t>(batch->calls.size());
  }

  // Answers the calls of `batch` that need not run, and removes them.
  void AnswerLeavers(Batch* batch) {
    const absl::Time now = clock_.Now();
    for (AdmittedCall& admitted : batch->calls) {
      if (admitted.call->cancelled()) {
        AnswerCancelled(std::exchange(admitted, {}));
      } else if (admitted.call->deadline <= now) {
        AnswerExpired(std::exchange(admitted, {}));
      }
    }
    const auto left = [](const AdmittedCall& admitted) { return admitted.call == nullptr; };
    batch->calls.erase(std::remove_if(batch->calls.begin(), batch->calls.end(), left),
                       batch->calls.end());
  }

  // The main function of the thread that watches deadlines.
  void Watch() {
    MutexLock lock(&mu_);
    absl::Time next_sweep = absl::InfiniteFuture();
    while (true) {
      AdmitWaiting();  // releases the lock meanwhile, as LetRead and AnswerLeaversOf do
      LetRead();
      if (stopping_) return;
      const absl::Time now = clock_.Now();
      const bool looks = waiting_.size() + gate_.waiting() > 0;
      const absl::Time look = looks ? now + kRoomPeriod : absl::InfiniteFuture();
      // Calls mostly leave the queue at once, so they do not wake this thread before the sweep.
      const bool idle = !looks && queue_.size() + gathering_.size() == 0;
      next_sweep = idle && next_sweep <= now ? absl::InfiniteFuture()
                                             : std::min(next_sweep, now + kSweepPeriod);
      const absl::Time wake = std::min({queue_.next_deadline(), gathering_.next_deadline(),
                                        waiting_.next_deadline(), next_sweep});
      if (now < wake) {
        watch_sleeps_until_ = std::min(wake, look);
        clock_.Wait(&watch_changed_, &mu_, watch_sleeps_until_);
        watch_sleeps_until_ = absl::InfinitePast();
        continue;
      }
      const bool sweeps = next_sweep <= now;
      if (sweeps) next_sweep = absl::InfiniteFuture();
      for (CallQueue* const queue : {&queue_, &gathering_, &waiting_}) {
        AnswerLeaversOf(queue, now, sweeps);
      }
      if (sweeps) GiveFreeMemoryBack();
    }
  }

  // Answers the calls of `queue` whose deadline has passed and, if `sweeps`, those whose caller is
  // gone.
  void AnswerLeaversOf(CallQueue* queue, absl::Time now, bool sweeps)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<AdmittedCall> expired = queue->TakeExpired(now);
    auto cancelled = sweeps ? queue->TakeCancelled() : std::vector<AdmittedCall>();
    mu_.Unlock();
    for (AdmittedCall& call : expired) AnswerExpired(std::move(call));
    for (AdmittedCall& call : cancelled) AnswerCancelled(std::move(call));
    mu_.Lock();
  }

  // Returns freed memory to the system if the allocator and the pool keep more than the budget has
  // room for. malloc_trim blocks allocation, so it takes at most a twentieth of the time.
  // Statistics still count trimmed pages as kept.
  void GiveFreeMemoryBack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto begun = std::chrono::steady_clock::now();
    if (begun < trim_after_) return;
    mu_.Unlock();
    const int64_t kept = pool_.kept_bytes() + static_cast<int64_t>(mallinfo2().fordblks);
    if (kept > admission_.room_bytes()) malloc_trim(0);
    mu_.Lock();
    trim_after_ = begun + 20 * (std::chrono::steady_clock::now() - begun);
  }

  void Run(Batch batch) {
    absl::InlinedVector<Call*, 1> calls;
    calls.reserve(batch.calls.size());
    int64_t bytes = 0, message_bytes = 0;
    for (const AdmittedCall& admitted : batch.calls) {
      calls.push_back(admitted.call.get());
      bytes += admitted.call->work_bytes();
      message_bytes += admitted.call->cost_bytes;
    }
    RunFacts facts;
    Results results = RunCalls(calls, backend_, pool_, clock_, &facts);
    jobs_.fetch_add(facts.jobs, std::memory_order_relaxed);
    if (bytes > kLargeRunBytes) counters_.CountLargeRun(facts.jobs, bytes, message_bytes);
    if (batch.gathers) EndRun();
    if (options_.observer != nullptr) {
      options_.observer->Ran(
          {static_cast<int64_t>(calls.size()), facts.jobs, bytes, facts.gather, facts.compute});
    }
    for (size_t i = 0; i < results.size(); ++i) {
      absl::StatusOr<Result>& result = results[i];
      AdmittedCall& admitted = batch.calls[i];
      if (result.ok()) {
        // The output keeps its part of the byte budget until the response is sent.
        result->buffer->Keep(admitted.permit.Split(result->buffer->size()));
      }
      Answer(std::move(admitted), std::move(result));
    }
  }

  void AnswerExpired(AdmittedCall admitted) {
    const char* const message = "server: deadline passed in the queue";
    Answer(std::move(admitted),
           Counted(&counters_.calls_expired, absl::DeadlineExceededError(message)));
  }

  void AnswerCancelled(AdmittedCall admitted) {
    Answer(std::move(admitted),
           Counted(&counters_.calls_cancelled, absl::CancelledError(kCallerLeft)));
  }

  // The call and its bytes are freed before the engine counts it as done.
  void Answer(AdmittedCall admitted, absl::StatusOr<Result> result) {
    admitted.call->Done(std::move(result));
    admitted = {};
    Leave();
  }

  const EngineOptions options_;
  Backend& backend_;
  const BatchPolicy policy_;
  Clock& clock_;
  std::atomic<int64_t> inline_bytes_;
  PlanCache plans_;
  Admission admission_;
  ReadGate gate_;
  BufferPool pool_;

  // What every small call writes, in one cache line: others may write it meanwhile.
  alignas(64) std::atomic<int64_t> inline_ = 0;
  std::atomic<int64_t> jobs_ = 0;
  Mutex mu_;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;  // admitted and not yet answered

  Counters counters_;
  CondVar queue_changed_;                     // for workers
  CondVar watch_changed_;                     // for the deadline thread
  CondVar all_left_;                          // for Drain
  CallQueue queue_ ABSL_GUARDED_BY(mu_);      // calls that run alone
  CallQueue gathering_ ABSL_GUARDED_BY(mu_);  // calls that run together
  CallQueue waiting_ ABSL_GUARDED_BY(mu_);    // their permits count held bytes
  int64_t runs_ ABSL_GUARDED_BY(mu_) = 0;     // running batches of gathered calls
  bool gathered_last_ ABSL_GUARDED_BY(mu_) = false;
  std::chrono::steady_clock::time_point trim_after_ ABSL_GUARDED_BY(mu_) = {};
  EngineStats stats_ ABSL_GUARDED_BY(mu_);                                     // of batches
  absl::Time watch_sleeps_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // the past: awake
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

Engine::Engine(const EngineOptions& options, Backend* backend, Clock* clock)
    : impl_(std::make_unique<Impl>(options, backend, clock)) {}
Engine::~Engine() = default;

absl::StatusOr<std::shared_ptr<const Plan>> Engine::GetPlan(const ResolvedSpec& spec) {
  return impl_->plans().Get(spec);
}
void Engine::CountPlanHits(int64_t plans) { impl_->plans().CountHits(plans); }
void Engine::Submit(std::unique_ptr<Call> call) { impl_->Submit(std::move(call)); }
absl::StatusOr<Permit> Engine::MayParse(int64_t bytes, absl::Time deadline, Question cancelled) {
  return impl_->MayParse(bytes, deadline, cancelled);
}
absl::StatusOr<Permit> Engine::Reserve(int64_t bytes) { return impl_->Reserve(bytes); }
bool Engine::MayRead(std::weak_ptr<Reader> reader, int64_t bytes) {
  return impl_->MayRead(std::move(reader), bytes);
}
void Engine::SetInlineBytes(int64_t bytes) { impl_->SetInlineBytes(bytes); }
void Engine::SetMaxInflightBytes(int64_t bytes) { impl_->SetMaxInflightBytes(bytes); }
bool Engine::Drain(absl::Time deadline) { return impl_->Drain(deadline); }
EngineStats Engine::stats() const { return impl_->stats(); }
Backend* Engine::backend() const { return impl_->backend(); }

}  // namespace phasor::engine
