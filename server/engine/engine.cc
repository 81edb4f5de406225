// SPDX-License-Identifier: Apache-2.0
// Submit admits and either runs the call or queues it; workers take calls in order; one more thread
// answers calls that need no worker, those past their deadline and those nobody waits for, and
// admits those that wait for room.
#include "server/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/engine/admission.h"
#include "server/engine/call_queue.h"
#include "server/engine/mutex.h"
#include "server/engine/plan_cache.h"
#include "server/engine/run_call.h"

namespace phasor::engine {
namespace {

// How often the queue is searched for calls whose caller is gone.
constexpr absl::Duration kSweepPeriod = absl::Milliseconds(50);
// How often calls that wait for room look for it. Looking is cheap, and a budget holds far more
// than passes in this time, so nobody has to tell them.
constexpr absl::Duration kRoomPeriod = absl::Milliseconds(5);

int WorkerCount(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// An output that holds its part of the byte budget until the response has been sent.
class MeteredBuffer final : public Buffer {
 public:
  MeteredBuffer(BufferRef buffer, Permit permit)
      : buffer_(std::move(buffer)), permit_(std::move(permit)) {}
  std::byte* data() override { return buffer_->data(); }
  int64_t size() const override { return buffer_->size(); }

 private:
  const BufferRef buffer_;
  const Permit permit_;
};

}  // namespace

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, Backend* backend, Clock* clock)
      : options_(options),
        backend_(*backend),
        clock_(*clock),
        plans_(options.plan_cache_entries),
        pool_(options.pool_bytes),
        admission_(options.max_inflight_bytes) {
    const int workers = WorkerCount(options.workers);
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
    const bool run_here = call->cost_bytes + call->other_bytes <= options_.inline_bytes;
    absl::Status status = permit.ok() ? Enter() : std::move(permit).status();
    if (!status.ok()) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      call->Done(std::move(status));
      return;
    }
    AdmittedCall admitted{std::move(call), *std::move(permit)};
    admitted.call->Admitted();
    if (run_here) {
      inline_.fetch_add(1, std::memory_order_relaxed);
      Run(std::move(admitted));
    } else {
      queued_.fetch_add(1, std::memory_order_relaxed);
      Enqueue(std::move(admitted));
    }
  }

  absl::StatusOr<Permit> Reserve(int64_t bytes) { return admission_.Take(bytes); }

  bool Drain(absl::Time deadline) {
    MutexLock lock(&mu_);
    draining_ = true;
    while (calls_ > 0 && clock_.Now() < deadline) clock_.Wait(&all_left_, &mu_, deadline);
    return calls_ == 0;
  }

  EngineStats stats() {
    EngineStats stats;
    stats.calls_inline = inline_.load(std::memory_order_relaxed);
    stats.calls_queued = queued_.load(std::memory_order_relaxed);
    stats.calls_refused = refused_.load(std::memory_order_relaxed);
    stats.calls_expired = expired_.load(std::memory_order_relaxed);
    stats.calls_cancelled = cancelled_.load(std::memory_order_relaxed);
    stats.inflight_bytes = admission_.taken_bytes();
    stats.plan_cache_hits = plans_.hits();
    stats.plan_cache_misses = plans_.misses();
    MutexLock lock(&mu_);
    stats.queued_calls = queue_.size();
    stats.waiting_calls = waiting_.size();
    return stats;
  }

 private:
  // Counts a call in, unless the engine drains.
  absl::Status Enter() {
    MutexLock lock(&mu_);
    if (draining_) return absl::UnavailableError("server: draining, try another one");
    ++calls_;
    return absl::OkStatus();
  }

  void Leave() {
    MutexLock lock(&mu_);
    if (--calls_ == 0) all_left_.SignalAll();
  }

  // Takes the call if it must wait: there is no room, or others wait already.
  bool WaitsForRoom(std::unique_ptr<Call>& call, absl::StatusOr<Permit>& permit) {
    MutexLock lock(&mu_);
    const bool full = absl::IsUnavailable(permit.status());
    if (draining_ || !(full || (permit.ok() && waiting_.size() > 0))) return false;
    if (permit.ok()) *permit = Permit();
    ++calls_;
    waiting_.Push({std::move(call), Permit()});
    if (waiting_.size() == 1) watch_changed_.Signal();
    return true;
  }

  // Moves calls that there is room for to the queue, in order.
  void AdmitWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (waiting_.size() > 0) {
      absl::StatusOr<Permit> permit = admission_.Take(waiting_.front_cost());
      if (!permit.ok()) return;
      AdmittedCall admitted{waiting_.Pop().call, *std::move(permit)};
      queued_.fetch_add(1, std::memory_order_relaxed);
      mu_.Unlock();
      admitted.call->Admitted();
      Enqueue(std::move(admitted));
      mu_.Lock();
    }
  }

  void Enqueue(AdmittedCall admitted) {
    MutexLock lock(&mu_);
    const bool wakes_watch = queue_.size() == 0 || admitted.call->deadline < queue_.next_deadline();
    queue_.Push(std::move(admitted));
    queue_changed_.Signal();
    if (wakes_watch) watch_changed_.Signal();
  }

  // A worker.
  void Work() {
    while (true) {
      AdmittedCall admitted = NextCall();
      if (admitted.call == nullptr) return;
      if (admitted.call->cancelled()) {
        AnswerCancelled(std::move(admitted));
      } else if (admitted.call->deadline <= clock_.Now()) {
        AnswerExpired(std::move(admitted));
      } else {
        Run(std::move(admitted));
      }
    }
  }

  // Waits for a call; none when the engine stops.
  AdmittedCall NextCall() {
    MutexLock lock(&mu_);
    while (queue_.size() == 0 && !stopping_) queue_changed_.Wait(&mu_);
    return queue_.Pop();
  }

  // The thread that watches deadlines.
  void Watch() {
    MutexLock lock(&mu_);
    absl::Time next_sweep = absl::InfiniteFuture();
    while (true) {
      AdmitWaiting();  // lets go of the lock, as AnswerLeavers does
      if (stopping_) return;
      const absl::Time now = clock_.Now();
      if (queue_.size() + waiting_.size() == 0) {
        next_sweep = absl::InfiniteFuture();
      } else {
        next_sweep = std::min(next_sweep, now + kSweepPeriod);
      }
      const absl::Time look = waiting_.size() == 0 ? absl::InfiniteFuture() : now + kRoomPeriod;
      const absl::Time wake =
          std::min({queue_.next_deadline(), waiting_.next_deadline(), next_sweep});
      if (now < wake) {
        clock_.Wait(&watch_changed_, &mu_, std::min(wake, look));
        continue;
      }
      const bool sweeps = next_sweep <= now;
      if (sweeps) next_sweep = absl::InfiniteFuture();
      AnswerLeavers(&queue_, now, sweeps);
      AnswerLeavers(&waiting_, now, sweeps);
    }
  }

  // Answers the calls of `queue` that are past their deadline and, if it `sweeps`, those whose
  // caller is gone.
  void AnswerLeavers(CallQueue* queue, absl::Time now, bool sweeps)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<AdmittedCall> expired = queue->TakeExpired(now);
    std::vector<AdmittedCall> cancelled;
    if (sweeps) cancelled = queue->TakeCancelled();
    mu_.Unlock();
    for (AdmittedCall& call : expired) AnswerExpired(std::move(call));
    for (AdmittedCall& call : cancelled) AnswerCancelled(std::move(call));
    mu_.Lock();
  }

  void Run(AdmittedCall admitted) {
    absl::StatusOr<Result> result = RunCall(*admitted.call, backend_, pool_);
    if (result.ok()) {
      Permit output = admitted.permit.Split(result->buffer->size());
      result->buffer =
          std::make_shared<MeteredBuffer>(std::move(result->buffer), std::move(output));
    }
    Answer(std::move(admitted), std::move(result));
  }

  void AnswerExpired(AdmittedCall admitted) {
    expired_.fetch_add(1, std::memory_order_relaxed);
    Answer(std::move(admitted),
           absl::DeadlineExceededError("server: deadline passed in the queue"));
  }

  void AnswerCancelled(AdmittedCall admitted) {
    cancelled_.fetch_add(1, std::memory_order_relaxed);
    Answer(std::move(admitted), absl::CancelledError("server: cancelled by the caller"));
  }

  // The call and its bytes are gone when the engine counts it out.
  void Answer(AdmittedCall admitted, absl::StatusOr<Result> result) {
    admitted.call->Done(std::move(result));
    admitted = {};
    Leave();
  }

  const EngineOptions options_;
  Backend& backend_;
  Clock& clock_;
  PlanCache plans_;
  BufferPool pool_;
  Admission admission_;

  std::atomic<int64_t> inline_ = 0;
  std::atomic<int64_t> queued_ = 0;
  std::atomic<int64_t> refused_ = 0;
  std::atomic<int64_t> expired_ = 0;
  std::atomic<int64_t> cancelled_ = 0;

  Mutex mu_;
  CondVar queue_changed_;  // for workers
  CondVar watch_changed_;  // for the deadline thread
  CondVar all_left_;       // for Drain
  CallQueue queue_ ABSL_GUARDED_BY(mu_);
  CallQueue waiting_ ABSL_GUARDED_BY(mu_);  // without permits
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;  // admitted and not answered
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
void Engine::Submit(std::unique_ptr<Call> call) { impl_->Submit(std::move(call)); }
absl::StatusOr<Permit> Engine::Reserve(int64_t bytes) { return impl_->Reserve(bytes); }
bool Engine::Drain(absl::Time deadline) { return impl_->Drain(deadline); }
EngineStats Engine::stats() const { return impl_->stats(); }
Backend* Engine::backend() const { return impl_->backend(); }

}  // namespace phasor::engine
