// SPDX-License-Identifier: Apache-2.0
// Checks in debug builds that mutexes are always locked in one order, so that threads cannot wait
// for each other for ever. Whoever locks B while it holds A has fixed the order A, B: to lock A
// while B is held ends the process, also if no other thread runs at that moment.
#ifndef PHASOR_SERVER_BASE_LOCK_ORDER_H_
#define PHASOR_SERVER_BASE_LOCK_ORDER_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

namespace phasor {

// Which mutexes have been locked while which were held, in the whole process. Threads: any.
class LockOrder {
 public:
  static LockOrder& Global() {
    static LockOrder* const order = new LockOrder;  // mutexes may outlive static objects
    return *order;
  }

  // The caller is about to lock `mutex`. Ends the process if that contradicts the order so far.
  void Lock(const void* mutex) {
    for (int i = 0; i < depth_; ++i) Note(held_[i], mutex);
    if (depth_ == kMaxHeld) {
      std::fprintf(stderr, "mutex %p: the thread holds %d mutexes already\n", mutex, depth_);
      std::abort();
    }
    held_[depth_++] = mutex;
  }
  // The caller has unlocked `mutex`.
  void Unlock(const void* mutex) {
    const void** const end = held_ + depth_;
    std::copy(std::find(held_, end, mutex) + 1, end, std::find(held_, end, mutex));
    --depth_;
  }
  // `mutex` is destroyed: another one may get its address.
  void Forget(const void* mutex) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ordered_.erase(mutex) == 0) return;
    after_.erase(mutex);
    for (auto& [first, later] : after_) later.erase(mutex);
  }

 private:
  void Note(const void* first, const void* later) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!after_[first].insert(later).second) return;
    ordered_.insert({first, later});
    if (!Leads(later, first)) return;
    std::fprintf(
        stderr,
        "mutex %p: locked while %p is held, though both have been locked in the opposite order\n",
        later, first);
    std::abort();
  }
  bool Leads(const void* from, const void* to) const {
    if (from == to) return true;
    const auto next = after_.find(from);
    return next != after_.end() &&
           std::any_of(next->second.begin(), next->second.end(),
                       [&](const void* between) { return Leads(between, to); });
  }

  static constexpr int kMaxHeld = 16;
  // Of this thread, in their order. Plain values: static objects lock after thread_local ones end.
  static inline thread_local const void* held_[kMaxHeld];
  static inline thread_local int depth_ = 0;
  std::mutex mutex_;
  std::map<const void*, std::set<const void*>> after_;  // without cycles
  std::set<const void*> ordered_;                       // those that are in `after_`
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_LOCK_ORDER_H_
