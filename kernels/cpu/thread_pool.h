// SPDX-License-Identifier: Apache-2.0
// A fixed set of threads that help a caller run numbered pieces of work.
#ifndef PHASOR_KERNELS_CPU_THREAD_POOL_H_
#define PHASOR_KERNELS_CPU_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"

namespace phasor::cpu {

// Runs pieces of work on helper threads and on the caller's thread.
// Threads: any number of threads may call ParallelFor at once; helpers serve the oldest call first.
// A caller never waits for a helper that has not started. Owns its helpers.
class ThreadPool {
 public:
  // `threads` (>= 1) counts the caller: threads - 1 helpers are started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls work(0) ... work(count - 1), each once, on this thread and idle helpers. Returns when all
  // have returned. An exception ends the process, on whichever thread.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> work) noexcept;

 private:
  struct Call;
  void Help(size_t thread);

  // A std::mutex, because distributions build Abseil without TSan, which then cannot see what an
  // absl::Mutex orders.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> waiting_{0};  // the size of calls_
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> helpers_;
};

}  // namespace phasor::cpu

#endif  // PHASOR_KERNELS_CPU_THREAD_POOL_H_
