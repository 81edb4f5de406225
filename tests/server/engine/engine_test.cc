// SPDX-License-Identifier: Apache-2.0
// Tests the engine: where calls run, when they are refused, how they leave the queue, how it
// drains.
#include "server/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/engine_fixture.h"

namespace phasor::engine {
namespace {

using ::testing::HasSubstr;

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;

class EngineTest : public EngineFixture {
 protected:
  EngineTest() : EngineFixture(/*workers=*/1) { options_.max_inflight_bytes = 1000; }
};

TEST_F(EngineTest, SmallCallRunsOnTheSubmittingThread) {
  options_.inline_bytes = 16;
  const AnswerRef answer = Submit();
  ASSERT_TRUE(answer->answered());
  EXPECT_EQ(answer->thread(), std::this_thread::get_id());
  EXPECT_EQ(OutputOf(*answer->Wait()), Inverted(text_));
  EXPECT_EQ(engine().stats().calls_inline, 1);
  EXPECT_EQ(engine().stats().calls_queued, 0);
}

TEST_F(EngineTest, LargerCallRunsOnAWorker) {
  options_.inline_bytes = 15;
  const AnswerRef answer = Submit();
  EXPECT_EQ(OutputOf(*answer->Wait()), Inverted(text_));
  EXPECT_NE(answer->thread(), std::this_thread::get_id());
  EXPECT_EQ(engine().stats().calls_queued, 1);
}

TEST_F(EngineTest, BytesOfSharedMemoryCountAQuarterOfThatLimit) {
  options_.inline_bytes = 16 + 5;
  for (const int64_t other_bytes : {5 * kHeldShare + 3, 6 * kHeldShare}) {
    const AnswerRef answer = SubmitWithShared(other_bytes);
    ASSERT_TRUE(answer->Wait().ok());
    EXPECT_EQ(answer->thread() == std::this_thread::get_id(), other_bytes < 6 * kHeldShare);
  }
}

TEST_F(EngineTest, TheLimitOfCallsThatRunOnTheSubmittingThreadCanChange) {
  options_.inline_bytes = 15;
  for (const int64_t inline_bytes : {16, 15, 16}) {
    engine().SetInlineBytes(inline_bytes);
    const AnswerRef answer = Submit();
    EXPECT_EQ(OutputOf(*answer->Wait()), Inverted(text_));
    EXPECT_EQ(answer->thread() == std::this_thread::get_id(), inline_bytes == 16);
  }
}

TEST_F(EngineTest, SlowArithmeticRunsOnAWorkerSixteenTimesSooner) {
  Plan parity;
  parity.parity.emplace();
  for (const int64_t inline_bytes : {16 * 16, 16 * 16 - 1}) {
    PreparedEncode encode;
    encode.plan = std::make_shared<const Plan>(parity);
    EXPECT_TRUE(IsSlow(ItemOf(encode)));
    EXPECT_FALSE(IsSlow(BytesItem(text_, 3)));
    options_.inline_bytes = inline_bytes;
    Engine engine(options_, &backend_, &clock_);
    const auto answer = std::make_shared<Answer>();
    auto call = BytesCall(answer, text_, 3);
    std::swap(call->cost_bytes, call->other_bytes);  // as if all were in shared memory
    std::get<PreparedRope>(call->items[0].prepared).plan = std::make_shared<const Plan>(parity);
    engine.Submit(std::move(call));
    EXPECT_EQ(OutputOf(*answer->Wait()), Inverted(text_));
    EXPECT_EQ(engine.stats().calls_inline, inline_bytes == 16 * 16 ? 1 : 0);
  }
}

TEST_F(EngineTest, CountsLargeRuns) {
  options_.max_inflight_bytes = 1 << 20;
  for (const int64_t bytes : {kLargeRunBytes / 2, kLargeRunBytes / 2 + 1}) {
    text_.assign(static_cast<size_t>(bytes), 'x');  // read once, and as much written
    ASSERT_TRUE(Submit()->Wait().ok());
  }
  EXPECT_EQ(engine().stats().jobs, 2);
  EXPECT_EQ(engine().stats().large_jobs, 1);
  EXPECT_EQ(engine().stats().large_bytes, kLargeRunBytes + 2);
  ASSERT_TRUE(SubmitWithShared(100)->Wait().ok());
  EXPECT_EQ(engine().stats().large_bytes, 2 * (kLargeRunBytes + 2) + 100);
  EXPECT_EQ(engine().stats().large_message_bytes, 2 * (kLargeRunBytes + 2));
}

TEST_F(EngineTest, RefusesWhatExceedsTheBudgetAndAdmitsAgainAfterwards) {
  options_.max_inflight_bytes = 40;
  const AnswerRef first = BlockWorker();
  const AnswerRef second = Submit();
  EXPECT_EQ(engine().stats().inflight_bytes, 32);
  const AnswerRef third = Submit();
  ASSERT_TRUE(third->answered());
  EXPECT_EQ(third->Wait().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(third->Wait().status().message(), HasSubstr("32 of 40 bytes"));
  EXPECT_EQ(engine().stats().calls_refused, 1);

  backend_.Release();
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(second->Wait().ok());
  first->Forget();
  second->Forget();
  ASSERT_TRUE(engine().Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine().stats().inflight_bytes, 0);
}

TEST_F(EngineTest, ResponseHoldsItsBytesUntilItIsSent) {
  options_.inline_bytes = 1000;
  const AnswerRef answer = Submit();
  ASSERT_TRUE(answer->Wait().ok());
  EXPECT_EQ(engine().stats().inflight_bytes, 8);
  answer->Forget();
  EXPECT_EQ(engine().stats().inflight_bytes, 0);
}

TEST_F(EngineTest, CallThatCanNeverFitIsResourceExhausted) {
  options_.max_inflight_bytes = 15;
  EXPECT_EQ(Submit()->Wait().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(EngineTest, LargeMessagesAreReadOnlyWhileThereIsRoomForThem) {
  options_.max_inflight_bytes = 3 * kSmallMessageBytes;
  const auto read = [&](int64_t bytes) {
    return engine().MayParse(bytes, absl::InfiniteFuture(), [] { return false; });
  };
  {
    const auto first = read(2 * kSmallMessageBytes);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(engine().stats().inflight_bytes, 2 * kSmallMessageBytes);
    EXPECT_EQ(read(2 * kSmallMessageBytes).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(read(kSmallMessageBytes).ok());
  }
  EXPECT_EQ(engine().stats().inflight_bytes, 0);
  EXPECT_TRUE(read(2 * kSmallMessageBytes).ok());
  EXPECT_EQ(read(4 * kSmallMessageBytes).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine().stats().calls_refused, 2);
}

TEST_F(EngineTest, LargeMessagesThatNobodyWaitsForAreNotRead) {
  const auto read = [&](absl::Time deadline, bool cancelled) {
    return engine().MayParse(kSmallMessageBytes + 1, deadline, [=] { return cancelled; }).status();
  };
  options_.max_inflight_bytes = 3 * kSmallMessageBytes;
  EXPECT_EQ(read(absl::InfiniteFuture(), true).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(read(clock_.Now(), false).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(read(clock_.Now() + absl::Seconds(1), false).code(), kOk);
  EXPECT_EQ(engine().stats().calls_cancelled, 1);
  EXPECT_EQ(engine().stats().calls_expired, 1);
}

TEST_F(EngineTest, DeadlineInTheQueueIsAnsweredWhileAllWorkersAreBusy) {
  const AnswerRef busy = BlockWorker();
  const AnswerRef late = Submit(clock_.Now() + absl::Milliseconds(30));
  const AnswerRef patient = Submit(clock_.Now() + absl::Hours(1));
  clock_.Advance(absl::Milliseconds(29));
  EXPECT_FALSE(late->answered());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(late->Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(busy->answered());
  EXPECT_FALSE(patient->answered());
  EXPECT_EQ(engine().stats().calls_expired, 1);
  EXPECT_EQ(engine().stats().queued_calls, 1);
  backend_.Release();
  EXPECT_TRUE(patient->Wait().ok());
  EXPECT_EQ(backend_.runs(), 2);
}

TEST_F(EngineTest, EarlierDeadlineThatArrivesLaterIsSeen) {
  const AnswerRef busy = BlockWorker();
  const AnswerRef patient = Submit(clock_.Now() + absl::Milliseconds(40));
  const AnswerRef late = Submit(clock_.Now() + absl::Milliseconds(10));
  clock_.Advance(absl::Milliseconds(10));
  EXPECT_EQ(late->Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(patient->answered());
  backend_.Release();
}

TEST_F(EngineTest, CallOfACallerThatLeftIsSweptFromTheQueue) {
  const AnswerRef busy = BlockWorker();
  const AnswerRef gone = Submit();
  gone->Cancel();
  while (!gone->answered()) clock_.Advance(absl::Milliseconds(50));
  EXPECT_EQ(gone->Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(busy->answered());
  EXPECT_EQ(engine().stats().calls_cancelled, 1);
  backend_.Release();
  EXPECT_TRUE(busy->Wait().ok());
  EXPECT_EQ(backend_.runs(), 1);
}

TEST_F(EngineTest, CallsThatLeaveTheQueueAtOnceDoNotWakeTheThreadThatWatchesIt) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Submit()->Wait().ok());
  EXPECT_LE(clock_.waits(), 2);
}

TEST_F(EngineTest, WorkerDropsACancelledCallItReaches) {
  const AnswerRef busy = BlockWorker();
  const AnswerRef gone = Submit();
  gone->Cancel();
  backend_.Release();
  EXPECT_EQ(gone->Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(backend_.runs(), 1);
}

TEST_F(EngineTest, FailureOfTheDeviceIsTheAnswer) {
  backend_.FailWith(absl::InternalError("device lost"));
  EXPECT_EQ(Submit()->Wait()->items[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(engine().Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine().stats().inflight_bytes, 0);
}

TEST_F(EngineTest, DrainRefusesNewCallsAndWaitsForOldOnes) {
  const AnswerRef running = BlockWorker();
  const AnswerRef queued = Submit();
  EXPECT_FALSE(engine().Drain(clock_.Now()));
  const AnswerRef refused = Submit();
  ASSERT_TRUE(refused->answered());
  EXPECT_EQ(refused->Wait().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused->Wait().status().message(), HasSubstr("draining"));
  EXPECT_FALSE(queued->answered());
  backend_.Release();
  EXPECT_TRUE(engine().Drain(absl::InfiniteFuture()));
  EXPECT_EQ(running->Wait().status().code(), kOk);
  EXPECT_EQ(queued->Wait().status().code(), kOk);
}

TEST_F(EngineTest, DrainGivesUpAtItsDeadline) {
  const AnswerRef running = BlockWorker();
  const absl::Time deadline = clock_.Now() + absl::Seconds(30);
  std::thread advance([this] { clock_.Advance(absl::Seconds(30)); });
  EXPECT_FALSE(engine().Drain(deadline));
  advance.join();
  backend_.Release();
}

TEST_F(EngineTest, DestructorAnswersEverythingAdmitted) {
  const AnswerRef running = BlockWorker();
  const AnswerRef queued = Submit();
  backend_.Release();
  engine_.reset();
  EXPECT_TRUE(running->answered());
  EXPECT_TRUE(queued->answered());
}

TEST_F(EngineTest, ResponseOutlivesTheEngine) {
  const AnswerRef answer = Submit();
  ASSERT_TRUE(answer->Wait().ok());
  engine_.reset();
  EXPECT_EQ(OutputOf(*answer->Wait()), Inverted(text_));
}

// Calls that wait for room in a budget of two calls and a half.
class WaitingCallsTest : public EngineTest {
 protected:
  WaitingCallsTest() { options_.max_inflight_bytes = 40; }

  AnswerRef SubmitPatient(absl::Time deadline = absl::InfiniteFuture()) {
    auto answer = std::make_shared<Answer>();
    auto call = BytesCall(answer, text_, 3);
    call->deadline = deadline;
    call->waits_for_room = true;
    engine().Submit(std::move(call));
    return answer;
  }
  // Lets time pass until `answer` is there.
  void AdvanceUntil(const AnswerRef& answer) {
    while (!answer->answered()) clock_.Advance(absl::Milliseconds(5));
  }
};

TEST_F(WaitingCallsTest, AFullBudgetMakesThemWaitAndRefusesOthers) {
  const AnswerRef running = BlockWorker();
  const AnswerRef queued = Submit();
  const AnswerRef first = SubmitPatient();
  const AnswerRef second = SubmitPatient();
  EXPECT_FALSE(first->admitted());
  EXPECT_EQ(engine().stats().waiting_calls, 2);
  EXPECT_EQ(engine().stats().inflight_bytes, 32);
  EXPECT_EQ(Submit()->Wait().status().code(), absl::StatusCode::kUnavailable);

  backend_.Release();
  ASSERT_TRUE(running->Wait().ok());
  running->Forget();
  ASSERT_TRUE(queued->Wait().ok());
  queued->Forget();
  AdvanceUntil(first);
  EXPECT_TRUE(first->admitted());
  EXPECT_EQ(OutputOf(*first->Wait()), Inverted(text_));
  first->Forget();
  AdvanceUntil(second);
  second->Forget();
  ASSERT_TRUE(engine().Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine().stats().inflight_bytes, 0);
  EXPECT_EQ(engine().stats().waiting_calls, 0);
}

TEST_F(WaitingCallsTest, WhatTheyHoldLeavesLessRoomForOthers) {
  const AnswerRef running = BlockWorker();
  const AnswerRef queued = Submit();  // 32 of 40 bytes
  auto waiting = std::make_shared<Answer>();
  auto call = BytesCall(waiting, text_, 3);
  call->waits_for_room = true;
  call->received_bytes = 8;
  engine().Submit(std::move(call));
  EXPECT_EQ(engine().stats().inflight_bytes, 40);
  auto refused = std::make_shared<Answer>();
  const std::string four = text_.substr(0, 4);  // outlives the call, which borrows it
  engine().Submit(BytesCall(refused, four));    // 8 bytes
  EXPECT_EQ(refused->Wait().status().code(), absl::StatusCode::kUnavailable);

  backend_.Release();
  for (const AnswerRef& answer : {running, queued}) {
    ASSERT_TRUE(answer->Wait().ok());
    answer->Forget();
  }
  AdvanceUntil(waiting);
  EXPECT_EQ(OutputOf(*waiting->Wait()), Inverted(text_));
  waiting->Forget();
  ASSERT_TRUE(engine().Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine().stats().inflight_bytes, 0);
}

TEST_F(WaitingCallsTest, ALaterCallDoesNotOvertake) {
  options_.inline_bytes = 1000;
  options_.max_inflight_bytes = 48;
  const AnswerRef unsent[] = {Submit(), Submit(), Submit(), Submit(), Submit()};  // 8 bytes each
  ASSERT_EQ(engine().stats().inflight_bytes, 40);
  const AnswerRef first = SubmitPatient();  // 16 bytes; there is room for 8
  auto small = std::make_shared<Answer>();
  const std::string four = text_.substr(0, 4);  // outlives the call, which borrows it
  auto call = BytesCall(small, four);
  call->waits_for_room = true;
  engine().Submit(std::move(call));
  EXPECT_EQ(engine().stats().waiting_calls, 2);
  for (const AnswerRef& answer : unsent) answer->Forget();
  AdvanceUntil(first);
  AdvanceUntil(small);
}

TEST_F(WaitingCallsTest, DeadlineAndCancellationEndTheWait) {
  const AnswerRef running = BlockWorker();
  const AnswerRef queued = Submit();
  const AnswerRef late = SubmitPatient(clock_.Now() + absl::Milliseconds(30));
  const AnswerRef gone = SubmitPatient();
  gone->Cancel();
  AdvanceUntil(late);
  EXPECT_EQ(late->Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  AdvanceUntil(gone);
  EXPECT_EQ(gone->Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(late->admitted());
  EXPECT_EQ(engine().stats().waiting_calls, 0);
  backend_.Release();
}

TEST_F(WaitingCallsTest, WhatCanNeverFitIsNotWaitedFor) {
  options_.max_inflight_bytes = 15;
  EXPECT_EQ(SubmitPatient()->Wait().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(WaitingCallsTest, ALargerBudgetLetsThemInWhileAllElseStands) {
  const AnswerRef running = BlockWorker();
  const AnswerRef queued = Submit();
  const AnswerRef waiting = SubmitPatient();
  EXPECT_FALSE(waiting->admitted());
  engine().SetMaxInflightBytes(48);
  while (!waiting->admitted()) clock_.Advance(absl::Milliseconds(5));
  EXPECT_EQ(engine().stats().inflight_bytes, 48);
  backend_.Release();
  EXPECT_TRUE(waiting->Wait().ok());
}

TEST_F(WaitingCallsTest, ASmallerBudgetRefusesWhatCanNeverFitAnyMore) {
  const AnswerRef running = BlockWorker();
  const AnswerRef queued = Submit();
  const AnswerRef waiting = SubmitPatient();
  engine().SetMaxInflightBytes(15);
  AdvanceUntil(waiting);
  EXPECT_EQ(waiting->Wait().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine().stats().waiting_calls, 0);
  EXPECT_EQ(Submit()->Wait().status().code(), absl::StatusCode::kResourceExhausted);
  backend_.Release();
  EXPECT_TRUE(running->Wait().ok());  // what was admitted stays so
  EXPECT_TRUE(queued->Wait().ok());
}

TEST_F(EngineTest, ReservedBytesCountUntilTheyAreGivenBack) {
  options_.max_inflight_bytes = 40;
  {
    const auto permit = engine().Reserve(30);
    ASSERT_TRUE(permit.ok());
    EXPECT_EQ(engine().stats().inflight_bytes, 30);
    EXPECT_EQ(engine().Reserve(11).status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(engine().stats().inflight_bytes, 0);
}

class CountingReader final : public Reader {
 public:
  bool waits() const override { return true; }
  void Read(Permit) override { ++reads_; }
  int reads() const { return reads_; }

 private:
  std::atomic<int> reads_ = 0;
};

TEST_F(EngineTest, ReadersAreCalledWhenThereIsRoom) {
  options_.max_inflight_bytes = 40;
  const auto reader = std::make_shared<CountingReader>();
  EXPECT_TRUE(engine().MayRead(reader, 35));
  absl::StatusOr<Permit> all = engine().Reserve(40);
  EXPECT_FALSE(engine().MayRead(reader, 35));
  EXPECT_EQ(engine().stats().waiting_readers, 1);
  all = Permit();
  while (reader->reads() == 0) clock_.Advance(absl::Milliseconds(5));
  EXPECT_EQ(engine().stats().waiting_readers, 0);
}

TEST_F(EngineTest, ReadersReadWhenItDrains) {
  options_.max_inflight_bytes = 40;
  const auto reader = std::make_shared<CountingReader>();
  const absl::StatusOr<Permit> all = engine().Reserve(40);
  ASSERT_FALSE(engine().MayRead(reader, 1));
  EXPECT_TRUE(engine().Drain(absl::InfiniteFuture()));
  EXPECT_EQ(reader->reads(), 1);
  EXPECT_TRUE(engine().MayRead(reader, 1));
}

TEST_F(EngineTest, PooledMemoryMakesRoomForCalls) {
  options_.max_inflight_bytes = 512 << 10;
  const std::string small(64 << 10, 'x');
  const std::string large(200 << 10, 'x');
  const auto run = [this](const std::string& text) {
    auto answer = std::make_shared<Answer>();
    engine().Submit(BytesCall(answer, text));
    EXPECT_TRUE(answer->Wait().ok());
    return answer;
  };
  run(small)->Forget();
  EXPECT_EQ(engine().stats().pooled_bytes, 64 << 10);
  const AnswerRef unsent = run(small);
  run(small)->Forget();
  EXPECT_EQ(engine().stats().pooled_bytes, 64 << 10);
  while (engine().stats().inflight_bytes > 64 << 10) std::this_thread::yield();
  const AnswerRef other = run(large);  // 400 of the 448 KiB that are left
  EXPECT_EQ(engine().stats().pooled_bytes, 0);
}

TEST_F(EngineTest, ManyCallsFromManyThreadsAreAnsweredOnce) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 100;
  options_.workers = 3;
  options_.inline_bytes = 20;  // some inline, some queued
  options_.max_inflight_bytes = 300;
  engine();
  std::vector<std::vector<AnswerRef>> answers(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t, &answers] {
      for (int i = 0; i < kCalls; ++i) {
        auto answer = std::make_shared<Answer>();
        auto call = BytesCall(answer, text_, 3);
        call->cost_bytes += (i % 3) * 8;
        if (i % 7 == 0) answer->Cancel();
        if (i % 11 == 0) call->deadline = clock_.Now() - absl::Seconds(1);
        engine_->Submit(std::move(call));
        answers[t].push_back(std::move(answer));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int ok = 0;
  for (const auto& of_thread : answers) {
    for (const AnswerRef& answer : of_thread) {
      if (answer->Wait().ok()) {
        EXPECT_EQ(OutputOf(*answer->Wait()), Inverted(text_));
        ++ok;
      }
      EXPECT_EQ(answer->times_answered(), 1);
    }
  }
  EXPECT_GT(ok, 0);
  const EngineStats stats = engine().stats();
  EXPECT_EQ(stats.calls_inline + stats.calls_queued + stats.calls_refused, kThreads * kCalls);
  EXPECT_EQ(stats.queued_calls, 0);
}

}  // namespace
}  // namespace phasor::engine
