// SPDX-License-Identifier: Apache-2.0
// Tests which orders of locks are refused.
#include "server/base/lock_order.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/base/mutex.h"

namespace phasor {
namespace {

const int kMutexes[3] = {};
constexpr char kRefused[] = "though both have been locked in the opposite order";

// Locks two of the mutexes, one while the other is held.
void Nest(LockOrder& order, int first, int later) {
  order.Lock(&kMutexes[first]);
  order.Lock(&kMutexes[later]);
  order.Unlock(&kMutexes[later]);
  order.Unlock(&kMutexes[first]);
}

TEST(LockOrderDeathTest, TheOppositeOrderIsRefusedAlsoOfAnotherThreadLater) {
  LockOrder order;
  std::thread([&] { Nest(order, 0, 1); }).join();
  Nest(order, 0, 1);
  EXPECT_DEATH(Nest(order, 1, 0), kRefused);
}

TEST(LockOrderDeathTest, SoIsARing) {
  LockOrder order;
  Nest(order, 0, 1);
  Nest(order, 1, 2);
  Nest(order, 0, 2);
  EXPECT_DEATH(Nest(order, 2, 0), kRefused);
}

TEST(LockOrderDeathTest, SoIsAMutexThatTheThreadHolds) {
  LockOrder order;
  EXPECT_DEATH(Nest(order, 0, 0), kRefused);
}

TEST(LockOrderTest, AMutexMayBeUnlockedBeforeThoseThatWereLockedLater) {
  LockOrder order;
  order.Lock(&kMutexes[0]);
  order.Lock(&kMutexes[1]);
  order.Unlock(&kMutexes[0]);
  order.Unlock(&kMutexes[1]);
  order.Lock(&kMutexes[2]);  // while none is held
  order.Unlock(&kMutexes[2]);
  Nest(order, 2, 0);
  Nest(order, 2, 1);
}

TEST(LockOrderTest, ADestroyedMutexHasNoOrder) {
  LockOrder order;
  Nest(order, 0, 1);
  order.Forget(&kMutexes[1]);
  Nest(order, 1, 0);
}

TEST(LockOrderDeathTest, DebugBuildsCheckMutexes) {
#ifdef NDEBUG
  GTEST_SKIP() << "this build does not check them";
#else
  Mutex a, b;
  const auto nest = [](Mutex* first, Mutex* later) { const MutexLock outer(first), inner(later); };
  nest(&a, &b);
  EXPECT_DEATH(nest(&b, &a), kRefused);
#endif
}

}  // namespace
}  // namespace phasor
