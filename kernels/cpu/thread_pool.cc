// SPDX-License-Identifier: Apache-2.0
// Gives each thread a range of a call's pieces, and lets those that are ready take from the others.
#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "absl/container/fixed_array.h"
#include "hwy/cache_control.h"

namespace phasor::cpu {
namespace {

// How long a thread without work looks for some before it sleeps. A processor that sleeps may take
// longer to wake than a small rotation lasts, above all in a virtual machine.
constexpr std::chrono::microseconds kLookingFor{50};

// Looks that long whether `found` is true, and gives way to threads that have work.
template <typename Found>
void LookFor(const Found& found) {
  const auto end = std::chrono::steady_clock::now() + kLookingFor;
  do {
    for (int i = 0; i < 32; ++i) {
      if (found()) return;
      hwy::Pause();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
}

}  // namespace

// One ParallelFor. Threads claim pieces by counting up, each in a range of its own first: memory is
// read in order then, and a thread finds in its caches what it wrote there during the last call.
// Only a thread that has claimed a piece touches `work`, and the caller stays until all claimed
// pieces are done.
struct ThreadPool::Call {
  Call(int64_t n, int64_t threads, absl::FunctionRef<void(int64_t)> f)
      : count(n), work(f), ranges(static_cast<size_t>(std::min(n, threads))) {
    const auto all = static_cast<int64_t>(ranges.size());
    int64_t begin = 0;
    for (int64_t left = all; left > 0; --left) {
      Range& range = ranges[static_cast<size_t>(all - left)];
      range.next = begin;
      begin += (n - begin + left - 1) / left;  // larger ones first: the caller has begun
      range.end = begin;
    }
  }

  // Runs pieces until none is left to claim, as thread `thread` of the pool.
  void Run(size_t thread) {
    int64_t ran = 0;
    for (size_t k = 0; k < ranges.size(); ++k) {
      Range& range = ranges[(thread + k) % ranges.size()];
      for (int64_t i; (i = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end; ++ran) {
        work(i);
      }
    }
    if (ran == 0) return;
    if (done.fetch_add(ran, std::memory_order_acq_rel) + ran < count) return;
    const std::lock_guard<std::mutex> lock(mutex);
    finished.notify_all();
  }
  bool Done() const { return done.load(std::memory_order_acquire) == count; }
  bool Exhausted() const {
    return std::all_of(ranges.begin(), ranges.end(), [](const Range& range) {
      return range.next.load(std::memory_order_relaxed) >= range.end;
    });
  }

  struct Range {
    std::atomic<int64_t> next;
    int64_t end;
  };
  const int64_t count;
  const absl::FunctionRef<void(int64_t)> work;
  absl::FixedArray<Range> ranges;
  std::atomic<int64_t> done{0};
  std::mutex mutex;
  std::condition_variable finished;
};

ThreadPool::ThreadPool(int threads) {
  helpers_.reserve(static_cast<size_t>(std::max(threads - 1, 0)));
  for (int i = 1; i < threads; ++i) {
    helpers_.emplace_back([this, i] { Help(static_cast<size_t>(i)); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> work) noexcept {
  if (helpers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  const auto call = std::make_shared<Call>(count, this->threads(), work);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(call);
    waiting_ = calls_.size();
  }
  const int64_t wanted = std::min(count - 1, static_cast<int64_t>(helpers_.size()));
  for (int64_t i = 0; i < wanted; ++i) changed_.notify_one();
  call->Run(0);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = std::find(calls_.begin(), calls_.end(), call);
    if (it != calls_.end()) calls_.erase(it);
    waiting_ = calls_.size();
  }
  LookFor([&call] { return call->Done(); });
  std::unique_lock<std::mutex> lock(call->mutex);
  call->finished.wait(lock, [&call] { return call->Done(); });
}

void ThreadPool::Help(size_t thread) {
  for (;;) {
    std::shared_ptr<Call> call;
    LookFor([this] { return waiting_.load(std::memory_order_relaxed) > 0; });
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
      if (stopping_) return;
      call = calls_.front();
      if (call->Exhausted()) {
        calls_.pop_front();
        waiting_ = calls_.size();
        continue;
      }
    }
    call->Run(thread);
  }
}

}  // namespace phasor::cpu
