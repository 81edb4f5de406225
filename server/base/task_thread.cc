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

void TaskThread::Post(absl::AnyInvocable<void()> task) {
  MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
  changed_.SignalAll();
}

void TaskThread::Work() {
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      MutexLock lock(&mu_);
      while (tasks_.empty() && !stopping_) changed_.Wait(&mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace phasor
