// SPDX-License-Identifier: Apache-2.0
// CallbackThreads: has gRPC receive on few threads, and keeps those awake.
//
// gRPC 1.51 receives and answers calls on threads of its own: one for two cores of the machine,
// at least two and at most 16. They receive in turns. Whoever has received something wakes
// the next one before it answers, and on few cores that costs more than a small call. Also, a
// thread that had nothing to do for a second sleeps for 100 ms. A call waits if all of them sleep.
#ifndef PHASOR_SERVER_GRPC_CALLBACK_THREADS_H_
#define PHASOR_SERVER_GRPC_CALLBACK_THREADS_H_

#include <grpcpp/generic/generic_stub.h>

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/base/stop_signal.h"

namespace phasor {

// Most threads that gRPC starts for callbacks.
inline constexpr int kMostCallbackThreads = 16;

// The number of threads on which gRPC should receive if the process may use `cores`. It is gRPC's
// own, but counts the cores of this process and has no lower bound of two.
int ReceivingThreads(int cores);

// Owns a thread, and holds some of gRPC's, which belong to the whole process: at most one may exist
// at a time. Does nothing from gRPC 1.83 on, which has no such threads. Threads: any.
class CallbackThreads {
 public:
  // Leaves `wanted` threads, at least one, to gRPC and holds the others; kMostCallbackThreads:
  // holds none. gRPC answers no call until they are held, which takes some 20 ms. `all_are_useful`
  // is asked a few times a second, on a thread of this object. As long as it says so, none is held.
  CallbackThreads(int wanted, std::function<bool()> all_are_useful);
  // Returns the threads that it holds.
  ~CallbackThreads();
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;

  // How many threads it holds unless all are useful. Fewer than it should if the machine was too
  // busy when it counted them.
  int spare() const { return spare_; }

 private:
  void Run(std::function<void()> what);
  int CountSpare(int wanted);
  void Hold(int count);
  void Stay();
  void Beat();

  const std::function<bool()> all_are_useful_;
  grpc::GenericStub nowhere_;
  int spare_ = 0;
  Mutex mu_;
  CondVar changed_;
  int running_ ABSL_GUARDED_BY(mu_) = 0;  // calls of Run that have not ended
  int staying_ ABSL_GUARDED_BY(mu_) = 0;  // threads in Stay
  int stay_ ABSL_GUARDED_BY(mu_) = 0;     // how many of them should remain there
  StopSignal stop_;
  std::thread beat_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_CALLBACK_THREADS_H_
