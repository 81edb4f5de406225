// SPDX-License-Identifier: Apache-2.0
// Tests which errors are retried, after which wait, and when retries end.
#include "client/common/retry.h"

#include <deque>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phasor::client_internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Lt;
using ::testing::SizeIs;

const absl::Status kBusy = absl::UnavailableError("busy");
const RetryPolicy kPolicy = {3, absl::Milliseconds(100), absl::Milliseconds(150)};

// Time passes when someone waits.
class FakeTimer : public Timer {
 public:
  absl::Time Now() override { return now; }
  void After(absl::Duration delay, absl::AnyInvocable<void()> then) override {
    waits.push_back(delay);
    now += delay;
    then();
  }
  absl::Time now = absl::FromUnixSeconds(1000);
  std::vector<absl::Duration> waits;
};

TEST(RetryDelayTest, WhatMayHaveBegunIsNotTriedAgain) {
  RetryPolicy policy = kPolicy;
  policy.only_refused = true;
  const absl::Duration left = absl::Seconds(10);
  EXPECT_FALSE(RetryDelay(policy, 1, {kBusy, {}}, left, 0).has_value());
  EXPECT_EQ(RetryDelay(policy, 1, {kBusy, absl::Seconds(1)}, left, 0), absl::Seconds(1));
  EXPECT_TRUE(RetryDelay(kPolicy, 1, {kBusy, {}}, left, 0).has_value());
}

class RetryTest : public ::testing::Test {
 protected:
  // Runs attempts that end as `results` says; returns the call's status.
  absl::Status Run(std::deque<AttemptResult> results) {
    absl::Status final = absl::UnknownError("not done");
    auto left = std::make_shared<std::deque<AttemptResult>>(std::move(results));
    RunWithRetries(
        kPolicy, context_, &timer_,
        [&, left](absl::AnyInvocable<void(AttemptResult)> ended) {
          ++attempts_;
          AttemptResult result = left->front();
          left->pop_front();
          timer_.now += attempt_time_;
          ended(result);
        },
        [&](absl::Status status) { final = status; });
    return final;
  }

  FakeTimer timer_;
  CallContext context_ = {.deadline = timer_.now + absl::Seconds(10)};
  absl::Duration attempt_time_;
  int attempts_ = 0;
};

TEST_F(RetryTest, SuccessNeedsOneAttempt) {
  EXPECT_TRUE(Run({{absl::OkStatus()}}).ok());
  EXPECT_EQ(attempts_, 1);
  EXPECT_THAT(timer_.waits, SizeIs(0));
}

TEST_F(RetryTest, UnavailableIsTriedAgainWithGrowingWaits) {
  EXPECT_TRUE(Run({{kBusy}, {kBusy}, {absl::OkStatus()}}).ok());
  EXPECT_EQ(attempts_, 3);
  EXPECT_THAT(timer_.waits,
              ElementsAre(AllOf(Ge(absl::Milliseconds(50)), Lt(absl::Milliseconds(100))),
                          AllOf(Ge(absl::Milliseconds(75)), Lt(absl::Milliseconds(150)))));
}

TEST_F(RetryTest, TheLastAttemptsErrorIsTheCalls) {
  EXPECT_EQ(Run({{kBusy}, {kBusy}, {absl::UnavailableError("still busy")}}),
            absl::UnavailableError("still busy"));
  EXPECT_EQ(attempts_, 3);
}

TEST_F(RetryTest, OtherErrorsAreNotTriedAgain) {
  for (absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kResourceExhausted,
        absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kAborted,
        absl::StatusCode::kInternal, absl::StatusCode::kUnknown, absl::StatusCode::kCancelled}) {
    attempts_ = 0;
    EXPECT_EQ(Run({{absl::Status(code, "no")}}).code(), code);
    EXPECT_EQ(attempts_, 1);
  }
}

TEST_F(RetryTest, PushbackReplacesTheBackoff) {
  EXPECT_TRUE(Run({{kBusy, absl::Milliseconds(1234)}, {absl::OkStatus()}}).ok());
  EXPECT_THAT(timer_.waits, ElementsAre(absl::Milliseconds(1234)));
}

TEST_F(RetryTest, NegativePushbackMeansNever) {
  EXPECT_EQ(Run({{kBusy, absl::Milliseconds(-1)}}), kBusy);
  EXPECT_EQ(attempts_, 1);
}

TEST_F(RetryTest, DoesNotWaitPastTheDeadline) {
  attempt_time_ = absl::Seconds(9.99);
  EXPECT_EQ(Run({{kBusy}}), kBusy);
  attempt_time_ = absl::ZeroDuration();
  EXPECT_EQ(Run({{kBusy, absl::Seconds(11)}}), kBusy);
  EXPECT_THAT(timer_.waits, SizeIs(0));
}

TEST_F(RetryTest, CancelBetweenAttemptsEndsTheCall) {
  context_.cancel.emplace();
  context_.cancel->Cancel();
  EXPECT_EQ(Run({{kBusy}}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(attempts_, 1);
}

class ReconnectTest : public RetryTest {
 protected:
  // A call whose attempts fail; a server is connected from the look number `from` on.
  absl::Status Run(int from) {
    RetryPolicy policy = kPolicy;
    policy.connected = [this, from] { return ++looks_ >= from; };
    absl::Status final = absl::UnknownError("not done");
    RunWithRetries(
        policy, context_, &timer_,
        [&](absl::AnyInvocable<void(AttemptResult)> ended) {
          begun_.push_back(timer_.now);
          ended({kBusy});
        },
        [&](absl::Status status) { final = status; });
    return final;
  }

  int looks_ = 0;
  std::vector<absl::Time> begun_;
};

TEST_F(ReconnectTest, AnAttemptAfterTheFirstWaitsForAConnection) {
  EXPECT_EQ(Run(10), kBusy);
  EXPECT_THAT(begun_, SizeIs(3));
  EXPECT_EQ(looks_, 11);
  EXPECT_GT(begun_[1] - begun_[0], 9 * absl::Milliseconds(10));
}

TEST_F(ReconnectTest, NoLongerThanTheLimitForAllAttemptsTogether) {
  EXPECT_EQ(Run(1 << 30), kBusy);
  ASSERT_THAT(begun_, SizeIs(3));
  EXPECT_THAT(begun_[1] - begun_[0],
              AllOf(Ge(kReconnectWait), Lt(kReconnectWait + absl::Seconds(1))));
  EXPECT_LE(begun_[2] - begun_[1], kPolicy.max_backoff);
}

TEST_F(ReconnectTest, NotPastTheDeadline) {
  context_.deadline = timer_.now + absl::Seconds(1);
  EXPECT_EQ(Run(1 << 30), kBusy);
  EXPECT_THAT(begun_, SizeIs(1));
  EXPECT_LT(timer_.now, context_.deadline + absl::Seconds(1));
}

TEST(RetryDelayTest, JitterStaysInTheUpperHalf) {
  const AttemptResult busy = {kBusy};
  const absl::Duration left = absl::Hours(1);
  EXPECT_EQ(RetryDelay(kPolicy, 1, busy, left, 0.0), absl::Milliseconds(50));
  EXPECT_EQ(RetryDelay(kPolicy, 1, busy, left, 0.5), absl::Milliseconds(75));
  EXPECT_EQ(RetryDelay(kPolicy, 2, busy, left, 0.0), absl::Milliseconds(75));
  EXPECT_EQ(RetryDelay(kPolicy, 3, busy, left, 0.0), std::nullopt);
}

}  // namespace
}  // namespace phasor::client_internal
