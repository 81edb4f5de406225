// SPDX-License-Identifier: Apache-2.0
// Opens standard streams, and sets options of the memory allocator and of Abseil's mutexes.
#include "server/base/process.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <system_error>

#include "absl/synchronization/mutex.h"

namespace phasor {
namespace {

constexpr int kCoresPerHeap = 8;

// Whether the process ends because std::thread could not start one.
bool LacksThreads() {
  try {
    if (const auto reason = std::current_exception()) std::rethrow_exception(reason);
  } catch (const std::system_error& error) {
    return error.code() == std::errc::resource_unavailable_try_again;
  } catch (...) {
  }
  return false;
}

}  // namespace

void OpenStandardStreams() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDONLY);
  if (fd >= 0) close(fd);
}

void LimitHeaps(int cores) {
  if (std::getenv("MALLOC_ARENA_MAX") != nullptr || std::getenv("GLIBC_TUNABLES") != nullptr) {
    return;
  }
  mallopt(M_ARENA_MAX, std::max(1, cores / kCoresPerHeap));
}

void NameMissingThreads() {
  static const std::terminate_handler otherwise = std::get_terminate();
  std::set_terminate([] {
    if (!LacksThreads()) otherwise();
    std::fputs(
        "phasor-server: threads: no more can be started; raise the limit on them (TasksMax= of "
        "systemd, the pids of a container, ulimit -u)\n",
        stderr);
    std::_Exit(EXIT_FAILURE);
  });
}

namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

FileDescriptor ReadableAtStopSignals() {
  const sigset_t signals = StopSignals();
  return FileDescriptor(signalfd(-1, &signals, SFD_CLOEXEC));
}

}  // namespace

StartWatch::StartWatch() : signals_(ReadableAtStopSignals()), started_(eventfd(0, EFD_CLOEXEC)) {
  if (!signals_.valid() || !started_.valid()) return;
  thread_ = std::thread([this] {
    pollfd polled[] = {{signals_.get(), POLLIN, 0}, {started_.get(), POLLIN, 0}};
    poll(polled, 2, -1);
    signalfd_siginfo signal = {};
    if (polled[1].revents != 0 ||
        read(signals_.get(), &signal, sizeof(signal)) != static_cast<ssize_t>(sizeof(signal))) {
      return;
    }
    const sigset_t signals = StopSignals();
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    raise(static_cast<int>(signal.ssi_signo));
    _exit(128 + static_cast<int>(signal.ssi_signo));  // the first process of a container gets here
  });
}

StartWatch::~StartWatch() {
  const uint64_t one = 1;
  const ssize_t written = write(started_.get(), &one, sizeof(one));
  static_cast<void>(written);  // an eventfd at 0 accepts it
  if (thread_.joinable()) thread_.join();
}

void LeaveAtSignal(int nth) {
  static std::atomic<int> left;
  left.store(nth);
  for (const int number : {SIGTERM, SIGINT}) {
    std::signal(number, [](int signal) {
      if (left.fetch_sub(1) <= 1) _exit(128 + signal);
    });
  }
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void ChooseLockOrderChecks() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#else
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
#endif
}

}  // namespace phasor
