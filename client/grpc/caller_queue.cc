// SPDX-License-Identifier: Apache-2.0
// Every thread keeps one queue. Whoever leaves an operation behind leaves its queue with it.
#include "client/grpc/caller_queue.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "client/grpc/forked.h"
#include "kernels/base/steady_time.h"

namespace phasor::client_internal {
namespace {

// After this time without a call of the thread, the server may have sent something.
constexpr absl::Duration kUnread = absl::Milliseconds(1);
// gRPC takes some steps to see that a connection was closed, one in each poll: 4 were not enough.
constexpr int kPolls = 16;

std::unique_ptr<CallerQueue>& QueueOfThread() {
  struct Kept {
    std::unique_ptr<CallerQueue> queue;
    ~Kept() { LeakIfForked(queue); }
  };
  thread_local Kept kept;
  return kept.queue;
}

}  // namespace

std::unique_ptr<CallerQueue> CallerQueue::Take() {
  std::unique_ptr<CallerQueue> queue = std::move(QueueOfThread());
  if (queue == nullptr) queue = std::make_unique<CallerQueue>();
  if (SteadyNow() - queue->given_back_ > kUnread) queue->ReadWhatHasCome();
  return queue;
}

void CallerQueue::GiveBack(std::unique_ptr<CallerQueue> queue) {
  queue->given_back_ = SteadyNow();
  QueueOfThread() = std::move(queue);
}

CallerQueue::~CallerQueue() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool CallerQueue::Wait(const WaitLimits& limits, absl::FunctionRef<void()> cancel) {
  if (limits.interrupted == nullptr) {
    WaitForEnd();
    return true;
  }
  absl::Time give_up_at = limits.deadline + kGraceOfDeadline;
  bool interrupted = false;
  while (true) {
    const absl::Duration time = std::min(kAskInterval, give_up_at - SteadyNow());
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, WallTimeAfter(time)) == grpc::CompletionQueue::GOT_EVENT) {
      return true;
    }
    if (!interrupted && limits.interrupted()) {
      interrupted = true;
      cancel();
      give_up_at = std::min(give_up_at, SteadyNow() + kGraceOfInterruption);
    }
    if (SteadyNow() >= give_up_at) return false;
  }
}

void CallerQueue::WaitForEnd() {
  void* tag = nullptr;
  bool ok = false;
  queue_.Next(&tag, &ok);
}

bool CallerQueue::Sleep(absl::Duration time, grpc::Channel& channel,
                        const std::function<bool()>& interrupted) {
  const absl::Time end = SteadyNow() + time;
  for (absl::Time now = SteadyNow(); now < end; now = SteadyNow()) {
    const absl::Duration left =
        interrupted == nullptr ? end - now : std::min(end - now, kAskInterval);
    channel.NotifyOnStateChange(channel.GetState(/*try_to_connect=*/false), WallTimeAfter(left),
                                &queue_, this);
    WaitForEnd();
    if (interrupted != nullptr && interrupted()) return true;
  }
  return false;
}

void CallerQueue::Poll(absl::Duration time) {
  void* tag = nullptr;
  bool ok = false;
  queue_.AsyncNext(&tag, &ok, WallTimeAfter(time));
}

void CallerQueue::ReadWhatHasCome() {
  // One thread reads for all queues. Another one that polls meanwhile finds nothing, and would go
  // on before what came to its own connection has been dealt with.
  static std::mutex reading;
  const std::lock_guard<std::mutex> lock(reading);
  void* tag = nullptr;
  bool ok = false;
  for (int i = 0; i < kPolls; ++i) queue_.AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_REALTIME));
}

bool CallerQueue::PollUntil(absl::FunctionRef<bool()> done, const WaitLimits& limits) {
  while (!done()) {
    Poll(absl::Milliseconds(1));
    if (limits.interrupted == nullptr) continue;
    if (SteadyNow() >= limits.deadline + kGraceOfDeadline || limits.interrupted()) return false;
  }
  return true;
}

}  // namespace phasor::client_internal
