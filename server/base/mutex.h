// SPDX-License-Identifier: Apache-2.0
// Mutex, MutexLock and CondVar, which both clang's thread-safety analysis and ThreadSanitizer
// understand. Abseil's do not serve: distributions build Abseil without TSan, which then cannot see
// the order that absl::Mutex creates.
#ifndef PHASOR_SERVER_BASE_MUTEX_H_
#define PHASOR_SERVER_BASE_MUTEX_H_

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#ifndef NDEBUG
#include "server/base/lock_order.h"
#endif

namespace phasor {

// A mutex. Debug builds check the order in which mutexes are locked. Threads: any.
class ABSL_LOCKABLE Mutex {
 public:
#ifdef NDEBUG
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
#else
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() { LockOrder::Global().Forget(this); }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    LockOrder::Global().Lock(this);
    mutex_.lock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    mutex_.unlock();
    LockOrder::Global().Unlock(this);
  }
#endif

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex while it exists. Threads: the one that made it.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A condition variable for Mutex. Threads: any; waiting threads must hold the mutex.
class CondVar {
 public:
  // Both functions may return early.
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // At most a day, by the steady clock.
  void WaitFor(Mutex* mutex, absl::Duration time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(time, absl::Hours(24))));
    lock.release();
  }
  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_MUTEX_H_
