// SPDX-License-Identifier: Apache-2.0
// Tests how waits end: with their operation, by an interruption, or soon after their deadline.
#include "client/grpc/caller_queue.h"

#include <grpcpp/alarm.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <utility>

#include "kernels/base/steady_time.h"

namespace phasor::client_internal {
namespace {

constexpr absl::Duration kNever = absl::Hours(1);

// A queue with an operation that ends after some time, or when it is cancelled.
class CallerQueueTest : public ::testing::Test {
 protected:
  void Start(absl::Duration time) { alarm_.Set(queue_->queue(), WallTimeAfter(time), this); }
  // Ends the operation that a wait has left.
  void End() {
    alarm_.Cancel();
    queue_->WaitForEnd();
  }

  std::unique_ptr<CallerQueue> queue_ = CallerQueue::Take();
  grpc::Alarm alarm_;
};

TEST_F(CallerQueueTest, AThreadKeepsOneQueue) {
  CallerQueue* const first = queue_.get();
  CallerQueue::GiveBack(std::move(queue_));
  queue_ = CallerQueue::Take();
  EXPECT_EQ(queue_.get(), first);
  EXPECT_NE(CallerQueue::Take().get(), first) << "while the other is in use";
}

// How often this thread has given up its processor to wait.
int64_t Waits() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

TEST_F(CallerQueueTest, ReadingWhatHasComeDoesNotWaitForMore) {
  const int64_t before = Waits();
  for (int i = 0; i < 100; ++i) CallerQueue::Take();  // a new queue, which was never read
  EXPECT_LT(Waits() - before, 50);
}

TEST_F(CallerQueueTest, AWaitEndsWithItsOperation) {
  for (const bool asks : {false, true}) {
    Start(absl::Milliseconds(50));
    const absl::Time begin = SteadyNow();
    WaitLimits limits;
    if (asks) limits.interrupted = [] { return false; };
    EXPECT_TRUE(queue_->Wait(limits, [] { FAIL() << "nobody interrupts"; }));
    EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(40));
  }
}

TEST_F(CallerQueueTest, ADeadlineCountsOnlyIfSomebodyIsAsked) {
  Start(kGraceOfDeadline + absl::Milliseconds(50));
  EXPECT_TRUE(queue_->Wait({.deadline = SteadyNow()}, [] {}));
}

TEST_F(CallerQueueTest, AnInterruptionCancelsTheOperation) {
  Start(kNever);
  int asked = 0, cancelled = 0;
  EXPECT_TRUE(queue_->Wait({.interrupted = [&] { return ++asked == 2; }}, [&] {
    ++cancelled;
    alarm_.Cancel();
  }));
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(cancelled, 1);
}

TEST_F(CallerQueueTest, AnOperationThatDoesNotEndIsLeft) {
  Start(kNever);
  int cancelled = 0;
  EXPECT_FALSE(queue_->Wait({.interrupted = [] { return true; }}, [&] { ++cancelled; }));
  EXPECT_EQ(cancelled, 1);
  End();
}

TEST_F(CallerQueueTest, SoIsOneAfterItsDeadline) {
  Start(kNever);
  const absl::Time begin = SteadyNow();
  EXPECT_FALSE(queue_->Wait(
      {.deadline = begin + absl::Milliseconds(50), .interrupted = [] { return false; }},
      [] { FAIL() << "the deadline is gRPC's to keep"; }));
  EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(50) + kGraceOfDeadline);
  End();
}

TEST_F(CallerQueueTest, SleepsUntilTheTimeOrAnInterruption) {
  const auto channel =
      grpc::CreateChannel("unix:/nobody/listens/here", grpc::InsecureChannelCredentials());
  channel->GetState(/*try_to_connect=*/true);  // its state changes meanwhile
  for (const bool asks : {false, true}) {
    const absl::Time begin = SteadyNow();
    std::function<bool()> interrupted;
    if (asks) interrupted = [] { return false; };
    EXPECT_FALSE(queue_->Sleep(absl::Milliseconds(100), *channel, interrupted));
    EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(100));
  }
  int asked = 0;
  EXPECT_TRUE(queue_->Sleep(kNever, *channel, [&] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
}

TEST_F(CallerQueueTest, PollsUntilItIsDoneOrTheLimits) {
  int asked = 0;
  EXPECT_TRUE(queue_->PollUntil([&] { return ++asked == 3; }, {.deadline = SteadyNow()}));
  EXPECT_EQ(asked, 3);
  const auto never = [] { return false; };
  EXPECT_FALSE(queue_->PollUntil(never, {.interrupted = [&] { return ++asked == 6; }}));
  EXPECT_EQ(asked, 6);
  EXPECT_FALSE(queue_->PollUntil(never, {.deadline = SteadyNow(), .interrupted = never}));
}

}  // namespace
}  // namespace phasor::client_internal
