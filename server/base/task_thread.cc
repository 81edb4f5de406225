// SPDX-License-Identifier: Apache-2.0
// Runs tasks on a thread.
#include "server/base/task_thread.h"

#include <utility>

namespace phasor {

TaskThread::TaskThread() : thread_([this] { Work(); }) {}

TaskThread::~TaskThread() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void TaskThread::Post(uint64_t client, absl::AnyInvocable<void()> task) {
  MutexLock lock(&mu_);
  tasks_[client].push_back(std::move(task));
  changed_.SignalAll();
}

void TaskThread::Work() {
  uint64_t last = 0;  // the client of the last task
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      MutexLock lock(&mu_);
      while (tasks_.empty() && !stopping_) changed_.Wait(&mu_);
      if (tasks_.empty()) return;
      auto next = tasks_.upper_bound(last);
      if (next == tasks_.end()) next = tasks_.begin();
      last = next->first;
      task = std::move(next->second.front());
      next->second.pop_front();
      if (next->second.empty()) tasks_.erase(next);
    }
    task();
  }
}

}  // namespace phasor
