// SPDX-License-Identifier: Apache-2.0
// Stop: ends a long job between its pieces, when its caller is gone or its deadline has passed.
#ifndef PHASOR_KERNELS_BACKEND_STOP_H_
#define PHASOR_KERNELS_BACKEND_STOP_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

namespace phasor {

// One job's question whether to go on, and what came of it. The backend asks before each piece of
// the job and leaves out the others after the first no. Threads: any, after construction.
class Stop {
 public:
  // `ask` returns OK, or why to stop. It may be called from several threads at once, and must be
  // cheap.
  explicit Stop(std::function<absl::Status()> ask) : ask_(std::move(ask)) {}
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  // Whether the next piece may begin.
  bool MayBegin() {
    if (stopped_.load(std::memory_order_relaxed)) return false;
    absl::Status why = ask_();
    if (why.ok()) {
      begun_.store(true, std::memory_order_relaxed);
      return true;
    }
    std::lock_guard lock(mutex_);
    if (why_.ok()) why_ = std::move(why);
    stopped_.store(true, std::memory_order_relaxed);
    return false;
  }

  // Call both after the job. OK: no piece was left out.
  absl::Status why() const {
    std::lock_guard lock(mutex_);
    return why_;
  }
  // Whether a piece was begun.
  bool begun() const { return begun_.load(std::memory_order_relaxed); }

 private:
  const std::function<absl::Status()> ask_;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> begun_ = false;
  mutable std::mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKEND_STOP_H_
