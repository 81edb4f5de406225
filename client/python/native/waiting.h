// SPDX-License-Identifier: Apache-2.0
// Waits for calls without the interpreter lock, so that Ctrl-C ends them.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_WAITING_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_WAITING_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/connection.h"
#include "client/options.h"
#include "client/python/native/borrowed.h"
#include "client/python/native/helpers.h"

namespace phasor::python {

// How many times this process is a fork() of the one that loaded the module.
int ForkGeneration();
// Whether this is the thread on which Python runs signal handlers.
bool OnMainThread();
// `thread` is threading.main_thread().ident, which is a pthread_t.
void SetMainThread(uintptr_t thread);

// Whether a signal handler has raised an exception. Only the main thread runs handlers. Takes the
// interpreter lock.
bool Interrupted();

// How often a waiting main thread looks for signals, and how long it waits for work that it
// cancelled.
inline constexpr std::chrono::milliseconds kSignalPoll{20};
inline constexpr std::chrono::milliseconds kCancelPatience{40};

// The answer to one call, and what the call borrows. It outlives a wait that ended without answer.
template <typename T>
struct Pending {
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<absl::StatusOr<T>> answer;
  Borrowed borrowed;

  void Set(absl::StatusOr<T> value) {
    std::lock_guard lock(mutex);
    answer = std::move(value);
    answered.notify_all();
  }
  bool WaitFor(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return answered.wait_for(lock, time, [&] { return answer.has_value(); });
  }
};

// Makes one call and waits for its answer, whatever signals come. Needs no interpreter lock.
template <typename T, typename Start>
absl::StatusOr<T> Block(CallContext context, Start start) {
  context.caller_waits = true;
  Pending<T> pending;
  start(std::move(context),
        Done<T>([&](absl::StatusOr<T> value) { pending.Set(std::move(value)); }));
  std::unique_lock lock(pending.mutex);
  pending.answered.wait(lock, [&] { return pending.answer.has_value(); });
  return *std::move(pending.answer);
}

// Waits for the answer on the main thread and runs signal handlers meanwhile. If one raises, the
// call is cancelled, and the exception leaves this function, at the latest after kCancelPatience.
template <typename T>
absl::StatusOr<T> WaitWithSignals(Pending<T>& pending, CancelToken& cancel) {
  bool done = false;
  while (true) {
    {
      const WithoutLock without;
      done = pending.WaitFor(kSignalPoll);
    }
    if (done) return *std::move(pending.answer);
    if (PyErr_CheckSignals() == 0) continue;
    cancel.Cancel();
    {
      const WithoutLock without;
      pending.WaitFor(kCancelPatience);
    }
    throw nb::python_error();
  }
}

// Makes one call and waits for its answer. `start(context, done)` starts it. Needs the interpreter
// lock, and gives it up while it waits. On the main thread signal handlers run meanwhile. If one
// raises, the call is cancelled, and the exception leaves this function.
template <typename T, typename Start>
absl::StatusOr<T> Await(CallContext context, bool may_block, Borrowed borrowed, Start start) {
  if (!may_block || !OnMainThread()) {
    const WithoutLock without;
    return Block<T>(std::move(context), std::move(start));
  }
  context.caller_waits = true;
  context.interrupted = &Interrupted;
  auto pending = std::make_shared<Pending<T>>();
  pending->borrowed = std::move(borrowed);
  bool done = false;
  {
    const WithoutLock without;
    start(std::move(context),
          Done<T>([pending](absl::StatusOr<T> value) { pending->Set(std::move(value)); }));
    done = pending->WaitFor(std::chrono::milliseconds(0));
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!done) {
    return absl::DeadlineExceededError(
        "timeout: passed while the server took no bytes of the call");
  }
  const Borrowed dropped = std::move(pending->borrowed);  // here, not on the last thread
  return *std::move(pending->answer);
}

// Runs `work`, which blocks, without the interpreter lock: on the main thread, in a thread of its
// own, so that signals are seen. `work` must own what it uses, and must end soon after `cancel`.
template <typename T>
absl::StatusOr<T> RunBlocking(CancelToken cancel, std::function<absl::StatusOr<T>()> work) {
  if (!OnMainThread()) {
    const WithoutLock without;
    return work();
  }
  auto pending = std::make_shared<Pending<T>>();
  std::thread([pending, work = std::move(work)]() mutable {
    absl::StatusOr<T> result = work();
    work = nullptr;  // drop what it borrows before the caller goes on
    pending->Set(std::move(result));
  }).detach();
  return WaitWithSignals(*pending, cancel);
}

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_WAITING_H_
