// SPDX-License-Identifier: Apache-2.0
// Sets options of the memory allocator and of Abseil's mutexes.
#include "server/base/process.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace phasor {
namespace {

constexpr int kCoresPerHeap = 8;

}  // namespace

void LimitHeaps(int cores) {
  if (std::getenv("MALLOC_ARENA_MAX") != nullptr || std::getenv("GLIBC_TUNABLES") != nullptr) {
    return;
  }
  mallopt(M_ARENA_MAX, std::max(1, cores / kCoresPerHeap));
}

void TrustLockOrder() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace phasor
