// SPDX-License-Identifier: Apache-2.0
// Opens standard streams, and sets options of the memory allocator and of Abseil's mutexes.
#include "server/base/process.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
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
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
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

void ChooseLockOrderChecks() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#else
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
#endif
}

}  // namespace phasor
