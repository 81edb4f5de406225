// SPDX-License-Identifier: Apache-2.0
// Lets helpers and the caller claim numbered pieces of a call with one atomic counter.
#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>

namespace phasor::cpu {

// One ParallelFor. Threads claim pieces by counting up. Only a thread that has claimed a piece
// touches `work`, and the caller stays until all claimed pieces are done.
struct ThreadPool::Call {
  Call(int64_t n, absl::FunctionRef<void(int64_t)> f) : count(n), work(f) {}

  // Runs pieces until none is left to claim.
  void Run() {
    int64_t ran = 0;
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count; ++ran) work(i);
    if (ran == 0) return;
    const std::lock_guard<std::mutex> lock(mutex);
    done += ran;
    if (done == count) finished.notify_all();
  }
  bool Exhausted() const { return next.load(std::memory_order_relaxed) >= count; }

  const int64_t count;
  const absl::FunctionRef<void(int64_t)> work;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::condition_variable finished;
  int64_t done ABSL_GUARDED_BY(mutex) = 0;
};

ThreadPool::ThreadPool(int threads) {
  helpers_.reserve(static_cast<size_t>(std::max(threads - 1, 0)));
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { Help(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> work) {
  if (helpers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  const auto call = std::make_shared<Call>(count, work);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(call);
  }
  const int64_t wanted = std::min(count - 1, static_cast<int64_t>(helpers_.size()));
  for (int64_t i = 0; i < wanted; ++i) changed_.notify_one();
  call->Run();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = std::find(calls_.begin(), calls_.end(), call);
    if (it != calls_.end()) calls_.erase(it);
  }
  std::unique_lock<std::mutex> lock(call->mutex);
  call->finished.wait(lock, [&call] { return call->done == call->count; });
}

void ThreadPool::Help() {
  for (;;) {
    std::shared_ptr<Call> call;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
      if (stopping_) return;
      call = calls_.front();
      if (call->Exhausted()) {
        calls_.pop_front();
        continue;
      }
    }
    call->Run();
  }
}

}  // namespace phasor::cpu
