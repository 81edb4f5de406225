// SPDX-License-Identifier: Apache-2.0
// Tests when the timer fires, and that it does not fire after Stop.
#include "server/grpc/idle_timer.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace phasor::rpc {
namespace {

constexpr absl::Duration kTimeout = absl::Milliseconds(20);

TEST(IdleTimerTest, CallsOnceWhenNothingHappens) {
  std::atomic<int> calls = 0;
  absl::Notification called;
  const absl::Time start = absl::Now();
  IdleTimer timer(kTimeout, [&] {
    if (++calls == 1) called.Notify();
    return true;
  });
  called.WaitForNotification();
  EXPECT_GE(absl::Now() - start, kTimeout);
  timer.Stop();
  EXPECT_EQ(calls, 1);
}

TEST(IdleTimerTest, CallsAgainAfterARefusal) {
  std::atomic<int> calls = 0;
  absl::Notification third;
  IdleTimer timer(kTimeout, [&] {
    if (++calls < 3) return false;
    third.Notify();
    return true;
  });
  third.WaitForNotification();
  EXPECT_EQ(calls, 3);
}

TEST(IdleTimerTest, ATouchPostponesTheCall) {
  absl::Notification called;
  absl::Time touched;
  IdleTimer timer(kTimeout, [&] {
    called.Notify();
    return true;
  });
  touched = absl::Now();
  timer.Touch();
  called.WaitForNotification();
  EXPECT_GE(absl::Now() - touched, kTimeout);
}

TEST(IdleTimerTest, NeverCallsWithoutATimeoutOrOnceStopped) {
  std::atomic<bool> called = false;
  const auto call = [&] {
    called = true;
    return true;
  };
  IdleTimer never(absl::ZeroDuration(), call);
  constexpr absl::Duration kTimeToStop = absl::Milliseconds(500);
  IdleTimer stopped(kTimeToStop, call);
  stopped.Stop();
  // One that was set later has fired: the others had their time.
  absl::Notification later;
  IdleTimer last(2 * kTimeToStop, [&] {
    later.Notify();
    return true;
  });
  later.WaitForNotification();
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace phasor::rpc
