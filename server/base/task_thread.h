// SPDX-License-Identifier: Apache-2.0
// TaskThread: runs what would keep one of gRPC's threads for long, such as writing a file.
#ifndef PHASOR_SERVER_BASE_TASK_THREAD_H_
#define PHASOR_SERVER_BASE_TASK_THREAD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "server/base/mutex.h"

namespace phasor {

// A thread that runs tasks one after another. Clients that have tasks waiting take turns; the tasks
// of each run in the order in which they were posted. The destructor runs all posted tasks and
// joins the thread. Threads: any may call Post.
class TaskThread {
 public:
  TaskThread();
  ~TaskThread();
  void Post(uint64_t client, absl::AnyInvocable<void()> task);

 private:
  void Work();

  Mutex mu_;
  CondVar changed_;
  std::map<uint64_t, std::deque<absl::AnyInvocable<void()>>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_TASK_THREAD_H_
