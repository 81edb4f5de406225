// SPDX-License-Identifier: Apache-2.0
// Tests the queue of calls.
#include "server/engine/call_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/test_call.h"

namespace phasor::engine {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

AdmittedCall MakeCall(int64_t cost, absl::Time deadline = absl::InfiniteFuture(),
                      AnswerRef answer = std::make_shared<Answer>()) {
  auto call = std::make_unique<TestCall>(std::move(answer));
  call->cost_bytes = cost;
  call->deadline = deadline;
  return {std::move(call), Permit()};
}

TEST(CallQueueTest, IsFirstInFirstOut) {
  CallQueue queue;
  queue.Push(MakeCall(1, kNow + absl::Seconds(9)));
  queue.Push(MakeCall(2, kNow + absl::Seconds(1)));
  queue.Push(MakeCall(3));
  EXPECT_EQ(queue.size(), 3);
  EXPECT_EQ(queue.Pop().call->cost_bytes, 1);
  EXPECT_EQ(queue.Pop().call->cost_bytes, 2);
  EXPECT_EQ(queue.Pop().call->cost_bytes, 3);
  EXPECT_EQ(queue.Pop().call, nullptr);
}

TEST(CallQueueTest, ClientsTakeTurns) {
  CallQueue queue;
  const auto push = [&](uint64_t client, int64_t cost) {
    AdmittedCall call = MakeCall(cost);
    call.client = client;
    queue.Push(std::move(call));
  };
  for (const int64_t cost : {11, 12, 13, 14}) push(1, cost);
  push(2, 21);
  push(3, 31);
  push(2, 22);
  std::vector<int64_t> order;
  while (queue.size() > 0) {
    const int64_t front = queue.front().cost_bytes;
    order.push_back(queue.Pop().call->cost_bytes);
    EXPECT_EQ(order.back(), front);
    // Who comes again stands behind those that wait.
    if (order.size() == 2) push(2, 23);
  }
  EXPECT_THAT(order, ::testing::ElementsAre(11, 21, 31, 12, 22, 13, 23, 14));
}

TEST(CallQueueTest, KnowsTheNextDeadline) {
  CallQueue queue;
  EXPECT_EQ(queue.next_deadline(), absl::InfiniteFuture());
  queue.Push(MakeCall(1, kNow + absl::Seconds(9)));
  queue.Push(MakeCall(2, kNow + absl::Seconds(3)));
  EXPECT_EQ(queue.next_deadline(), kNow + absl::Seconds(3));
  (void)queue.Pop();
  (void)queue.Pop();
  EXPECT_EQ(queue.next_deadline(), absl::InfiniteFuture());
}

TEST(CallQueueTest, TakesExactlyTheExpired) {
  CallQueue queue;
  queue.Push(MakeCall(1, kNow + absl::Seconds(9)));
  queue.Push(MakeCall(2, kNow + absl::Seconds(3)));
  queue.Push(MakeCall(3));
  queue.Push(MakeCall(4, kNow + absl::Seconds(3)));
  EXPECT_TRUE(queue.TakeExpired(kNow + absl::Seconds(3) - absl::Nanoseconds(1)).empty());
  const auto expired = queue.TakeExpired(kNow + absl::Seconds(3));
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(expired[0].call->cost_bytes, 2);
  EXPECT_EQ(expired[1].call->cost_bytes, 4);
  EXPECT_EQ(queue.Pop().call->cost_bytes, 1);
  EXPECT_EQ(queue.Pop().call->cost_bytes, 3);
}

TEST(CallQueueTest, TakesExactlyTheCancelled) {
  CallQueue queue;
  const auto answer = std::make_shared<Answer>();
  queue.Push(MakeCall(1));
  queue.Push(MakeCall(2, kNow, answer));
  queue.Push(MakeCall(3));
  EXPECT_TRUE(queue.TakeCancelled().empty());
  answer->Cancel();
  const auto cancelled = queue.TakeCancelled();
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_EQ(cancelled[0].call->cost_bytes, 2);
  EXPECT_EQ(queue.next_deadline(), absl::InfiniteFuture());
  EXPECT_EQ(queue.size(), 2);
}

}  // namespace
}  // namespace phasor::engine
