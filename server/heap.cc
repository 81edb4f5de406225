// SPDX-License-Identifier: Apache-2.0
// See heap.h.
#include "server/heap.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>

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

}  // namespace phasor
