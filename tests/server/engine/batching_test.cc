// SPDX-License-Identifier: Apache-2.0
// Tests how the engine runs calls together if the backend wants it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/backends.h"
#include "kernels/cuda/cuda_backend.h"
#include "server/base/mutex.h"
#include "server/engine/observer.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/fake_driver.h"
#include "tests/support/one_token_load.h"

namespace phasor::engine {
namespace {

using ::testing::_;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::UnorderedElementsAre;

constexpr int64_t kCallBytes = 16;  // of every call here

// Keeps what an engine reports.
class Reports final : public Observer {
 public:
  void Taken(absl::Duration queued) override {
    MutexLock lock(&mu_);
    taken_.push_back(queued);
  }
  void Ran(const RunReport& run) override {
    MutexLock lock(&mu_);
    runs_.push_back(run);
  }
  std::vector<absl::Duration> taken() {
    MutexLock lock(&mu_);
    return taken_;
  }
  std::vector<RunReport> runs() {
    MutexLock lock(&mu_);
    return runs_;
  }

 private:
  Mutex mu_;
  std::vector<absl::Duration> taken_ ABSL_GUARDED_BY(mu_);
  std::vector<RunReport> runs_ ABSL_GUARDED_BY(mu_);
};

class BatchingTest : public EngineFixture {
 protected:
  BatchingTest() : EngineFixture(/*workers=*/3) {
    backend_.SetPolicy({.bytes = 4 * kCallBytes, .runs = 1});
    options_.observer = &reports_;
  }
  ~BatchingTest() override { engine_.reset(); }  // before what it reports to

  Reports reports_;
};

TEST_F(BatchingTest, AnIdleBackendTakesACallAtOnce) {
  options_.inline_bytes = kCallBytes;
  for (int i = 0; i < 3; ++i) {
    const AnswerRef answer = Submit();
    ASSERT_TRUE(answer->answered());
    EXPECT_EQ(answer->thread(), std::this_thread::get_id());
  }
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 1, 1));
  EXPECT_EQ(engine().stats().calls_inline, 3);
}

TEST_F(BatchingTest, WhatWaitsForABusyBackendIsRunTogether) {
  const AnswerRef busy = BlockWorker();
  std::vector<AnswerRef> answers;
  for (int i = 0; i < 4; ++i) answers.push_back(Submit());
  backend_.Release();
  for (const AnswerRef& answer : answers) {
    ASSERT_TRUE(answer->Wait().ok());
    EXPECT_EQ(OutputOf(*answer->Wait()), Inverted(text_));
  }
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 4));
  const EngineStats stats = engine().stats();
  EXPECT_EQ(stats.batches, 2);
  EXPECT_EQ(stats.batched_calls, 5);
  EXPECT_EQ(stats.batches_full, 0);
  EXPECT_EQ(stats.batches_most_calls, 0);
  EXPECT_EQ(stats.jobs, 5);
}

TEST_F(BatchingTest, EveryDeviceHasACallBeforeOthersGather) {
  backend_.SetPolicy({.bytes = 4 * kCallBytes, .runs = 4, .early_runs = 2});
  const std::array<AnswerRef, 2> busy = {BlockWorker(), Submit()};
  backend_.WaitForRuns(2);
  const std::array<AnswerRef, 2> answers = {Submit(), Submit()};
  backend_.Release();
  for (const AnswerRef& answer : busy) EXPECT_TRUE(answer->Wait().ok());
  for (const AnswerRef& answer : answers) EXPECT_TRUE(answer->Wait().ok());
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 1, 2));
}

TEST_F(BatchingTest, CallsThatWouldRunInsideSubmitWaitWithTheOthers) {
  options_.inline_bytes = kCallBytes;
  engine();
  backend_.Hold();
  std::thread busy([&] { Submit(); });  // stays inside
  backend_.WaitForRuns(1);
  const std::array<AnswerRef, 2> answers = {Submit(), Submit()};
  backend_.Release();
  for (const AnswerRef& answer : answers) EXPECT_TRUE(answer->Wait().ok());
  busy.join();
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 2));
  EXPECT_EQ(engine().stats().calls_inline, 1);
}

TEST_F(BatchingTest, ABatchHasAtMostItsBytes) {
  const AnswerRef busy = BlockWorker();
  std::vector<AnswerRef> answers;
  for (int i = 0; i < 9; ++i) answers.push_back(Submit());
  backend_.Release();
  for (const AnswerRef& answer : answers) EXPECT_TRUE(answer->Wait().ok());
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 4, 4, 1));
  EXPECT_EQ(engine().stats().batches_full, 2);
}

TEST_F(BatchingTest, ABatchHasAtMostSoManyCalls) {
  backend_.SetPolicy({.bytes = 1000 * kCallBytes, .runs = 1});
  const AnswerRef busy = BlockWorker();
  std::vector<AnswerRef> answers;
  for (int i = 0; i < 300; ++i) answers.push_back(Submit());
  backend_.Release();
  for (const AnswerRef& answer : answers) EXPECT_TRUE(answer->Wait().ok());
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 256, 44));
  EXPECT_EQ(engine().stats().batches_most_calls, 1);
  EXPECT_EQ(engine().stats().batches_full, 0);
  EXPECT_EQ(engine().stats().jobs, 301);
}

// As if the backend wanted none together: calls as large as a batch, and those that need no trip.
TEST_F(BatchingTest, CallsOfOtherSizesNeitherGatherNorKeepOthersWaiting) {
  for (const BatchPolicy policy :
       {BatchPolicy{.bytes = kCallBytes},
        BatchPolicy{.bytes = 4 * kCallBytes, .least_bytes = kCallBytes + 1}}) {
    engine_.reset();
    backend_.SetPolicy(policy);
    const int runs = backend_.runs();
    const std::array<AnswerRef, 3> answers = {BlockWorker(), Submit(), Submit()};
    backend_.WaitForRuns(runs + 3);  // at once
    backend_.Release();
    for (const AnswerRef& answer : answers) EXPECT_TRUE(answer->Wait().ok());
  }
  EXPECT_THAT(backend_.jobs(), Each(1));
}

TEST_F(BatchingTest, ABackendMayWantNoneAnyMore) {
  const AnswerRef busy = BlockWorker();
  const AnswerRef gathers = Submit();
  backend_.SetPolicy({});
  const AnswerRef alone = Submit();
  backend_.WaitForRuns(2);
  EXPECT_EQ(engine().stats().queued_calls, 1);
  backend_.Release();
  EXPECT_TRUE(gathers->Wait().ok());
  EXPECT_TRUE(alone->Wait().ok());
}

TEST_F(BatchingTest, WhatFillsABatchNeedNotWaitForABusyBackend) {
  backend_.SetPolicy({.bytes = 2 * kCallBytes, .runs = 2});
  const AnswerRef busy = BlockWorker();
  std::array<AnswerRef, 4> answers;
  answers[0] = Submit();
  EXPECT_EQ(engine().stats().queued_calls, 1);  // might be joined by another
  answers[1] = Submit();
  backend_.WaitForRuns(2);
  answers[2] = Submit();
  answers[3] = Submit();
  EXPECT_EQ(engine().stats().queued_calls, 2);  // no more than two runs at a time
  backend_.Release();
  for (const AnswerRef& answer : answers) EXPECT_TRUE(answer->Wait().ok());
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 2, 2));
  EXPECT_EQ(backend_.most_at_once(), 2);
}

TEST_F(BatchingTest, ABackendThatWantsNoneGetsOneCallEach) {
  backend_.SetPolicy({});
  options_.workers = 1;
  const AnswerRef busy = BlockWorker();
  const std::array<AnswerRef, 2> answers = {Submit(), Submit()};
  backend_.Release();
  for (const AnswerRef& answer : answers) EXPECT_TRUE(answer->Wait().ok());
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 1, 1));
}

TEST_F(BatchingTest, AClientWithManyCallsDoesNotKeepAnotherOut) {
  backend_.SetPolicy({.bytes = 2 * kCallBytes, .runs = 1});
  const AnswerRef busy = BlockWorker();
  std::vector<AnswerRef> many;
  for (int i = 0; i < 20; ++i) many.push_back(Submit(absl::InfiniteFuture(), /*client=*/1));
  const AnswerRef other = Submit(absl::InfiniteFuture(), /*client=*/2);
  backend_.HoldFrom(3);
  EXPECT_TRUE(other->Wait().ok());  // in the second run
  backend_.Release();
  for (const AnswerRef& answer : many) EXPECT_TRUE(answer->Wait().ok());
  EXPECT_EQ(engine().stats().batches, 1 + 11);
}

// The worker finds it out: the clock stands still, so nobody looks through the queue.
TEST_F(BatchingTest, ABatchThatEverybodyLeftIsNotRun) {
  const AnswerRef busy = BlockWorker();
  const AnswerRef left = Submit();
  left->Cancel();
  backend_.Release();
  EXPECT_EQ(left->Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(busy->Wait().ok());
  EXPECT_THAT(backend_.jobs(), ElementsAre(1));
  EXPECT_TRUE(Submit()->Wait().ok());  // and the next may be
  EXPECT_EQ(engine().stats().calls_cancelled, 1);
}

TEST_F(BatchingTest, WhoLeftOrIsLateIsNotRun) {
  const AnswerRef busy = BlockWorker();
  const AnswerRef left = Submit();
  const AnswerRef late = Submit(clock_.Now() + absl::Hours(1));
  const AnswerRef stays = Submit();
  left->Cancel();
  clock_.Advance(absl::Hours(2));
  backend_.Release();
  EXPECT_EQ(late->Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(left->Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(stays->Wait().ok());
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 1));
}

// A call whose payload cannot be had.
class UnfetchableCall final : public Call {
 public:
  explicit UnfetchableCall(AnswerRef answer) : answer_(std::move(answer)) {}
  bool cancelled() const override { return false; }
  void Done(absl::StatusOr<Result> result) override { answer_->Set(std::move(result)); }
  absl::Status FetchPayload(BufferPool&) override { return absl::NotFoundError("gone"); }

 private:
  const AnswerRef answer_;
};

TEST_F(BatchingTest, ABadCallSpoilsNoOther) {
  const AnswerRef busy = BlockWorker();
  const AnswerRef before = Submit();
  const auto bad = std::make_shared<Answer>();
  auto call = std::make_unique<UnfetchableCall>(bad);
  call->cost_bytes = kCallBytes;
  engine().Submit(std::move(call));
  const AnswerRef after = Submit();
  backend_.Release();
  EXPECT_EQ(bad->Wait().status(), absl::NotFoundError("gone"));
  for (const AnswerRef& answer : {before, after}) {
    ASSERT_TRUE(answer->Wait().ok());
    EXPECT_EQ(OutputOf(*answer->Wait()), Inverted(text_));
    EXPECT_EQ(answer->times_released(), 1);
  }
  EXPECT_THAT(backend_.jobs(), ElementsAre(1, 2));
}

TEST_F(BatchingTest, ErrorsOfTheBackendGoToAllOfTheBatch) {
  const AnswerRef busy = BlockWorker();
  const std::array<AnswerRef, 2> answers = {Submit(), Submit()};
  backend_.FailWith(absl::UnavailableError("device lost"));
  backend_.Release();
  for (const AnswerRef& answer : answers) {
    EXPECT_EQ(answer->Wait()->items[0].status, absl::UnavailableError("device lost"));
  }
  for (const AnswerRef& answer : {busy, answers[0], answers[1]}) {
    answer->Wait();  // what came after it was forgotten would be kept
    answer->Forget();
  }
  EXPECT_TRUE(engine().Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine().stats().inflight_bytes, 0);
}

TEST_F(BatchingTest, ReportsEveryRunAndHowLongEachCallWasQueued) {
  const std::array<AnswerRef, 3> answers = {BlockWorker(), Submit(), Submit()};
  clock_.Advance(absl::Milliseconds(3));
  backend_.Release();
  for (const AnswerRef& answer : answers) EXPECT_TRUE(answer->Wait().ok());
  EXPECT_THAT(reports_.taken(),
              ElementsAre(absl::ZeroDuration(), absl::Milliseconds(3), absl::Milliseconds(3)));
  EXPECT_THAT(reports_.runs(), UnorderedElementsAre(FieldsAre(1, 1, kCallBytes, _, _),
                                                    FieldsAre(2, 2, 2 * kCallBytes, _, _)));
}

// On a device (a fake one, whose kernels run here): clients that decode share launches, and their
// bytes are those of the definition.
TEST(BatchingOnADeviceTest, ClientsOfOneTokenShareLaunches) {
  constexpr int kClients = 64, kCalls = 20;
  const auto device = std::make_shared<testing::FakeDevice>();
  device->SetTrip(absl::Milliseconds(20));  // in which all clients come back
  const auto reference = *MakeBackend({.name = "reference"});
  cuda::CudaBackend backend(std::make_unique<testing::FakeDriver>(device),
                            *MakeBackend({.name = "cpu", .threads = 1}), {.least_bytes = 0});
  EngineOptions options;
  options.workers = 4;
  Engine engine(options, &backend, Clock::Real());
  testing::OneTokenLoad load(kClients, kCalls);
  load.Run(engine);
  EXPECT_EQ(load.Wrong(*reference), 0);
  // However slow this machine is. How many share a launch is for ./dev bench batching to say.
  EXPECT_LE(backend.state().launches, kClients * kCalls / 2);
  EXPECT_EQ(backend.state().jobs_on_device, kClients * kCalls);
}

}  // namespace
}  // namespace phasor::engine
