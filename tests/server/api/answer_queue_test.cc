// SPDX-License-Identifier: Apache-2.0
// Tests which answers are held back, and what may be dropped.
#include "server/api/answer_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace phasor::rpc {
namespace {

using Step = AnswerQueue::Step;

AnswerQueue::Answer AnswerOf(size_t bytes, int64_t cost_bytes = 0, bool may_be_held = true) {
  const grpc::Slice slice(std::string(bytes, 'x'));
  return {grpc::ByteBuffer(&slice, 1), cost_bytes, Permit(), may_be_held};
}

// After a time in which messages overlapped, or not.
AnswerQueue After(bool overlapped) {
  AnswerQueue queue;
  queue.NoteMessage(true);
  if (overlapped) queue.NoteMessage(false);
  queue.NoteMessage(true);
  return queue;
}

TEST(AnswerQueueTest, TheFirstSmallAnswerOfABurstIsHeldOnce) {
  AnswerQueue queue = After(true);
  EXPECT_EQ(queue.Next(), Step::kNothing);
  queue.Push(AnswerOf(64));
  EXPECT_EQ(queue.Next(), Step::kHold);
  EXPECT_EQ(queue.Next(), Step::kNothing);
  queue.EndHold();
  EXPECT_EQ(queue.Next(), Step::kWrite);
}

TEST(AnswerQueueTest, AnAnswerWithAnotherBehindItIsWritten) {
  AnswerQueue queue = After(true);
  queue.Push(AnswerOf(64));
  queue.Push(AnswerOf(64));
  EXPECT_EQ(queue.Next(), Step::kWrite);
}

TEST(AnswerQueueTest, AnAnswerMayWaitForTheNextUnlessNoneWasWrittenBefore) {
  AnswerQueue queue = After(true);
  for (int i = 0; i < 3; ++i) queue.Push(AnswerOf(64));
  EXPECT_EQ(queue.Next(), Step::kWrite);
  EXPECT_FALSE(queue.CanWaitForNext());
  queue.EndWrite();
  EXPECT_EQ(queue.Next(), Step::kWrite);
  EXPECT_TRUE(queue.CanWaitForNext());
  queue.EndWrite();
  EXPECT_FALSE(queue.CanWaitForNext());
}

TEST(AnswerQueueTest, CallersWhoWaitForEachAnswerGetItAtOnce) {
  AnswerQueue queue = After(false);
  queue.Push(AnswerOf(64));
  EXPECT_EQ(queue.Next(), Step::kWrite);
}

TEST(AnswerQueueTest, MessagesThatNeverCeaseAreClose) {
  AnswerQueue queue;
  queue.NoteMessage(true);
  queue.NoteMessage(false);
  queue.Push(AnswerOf(64));
  EXPECT_EQ(queue.Next(), Step::kHold);
}

TEST(AnswerQueueTest, OverlapsOfLongAgoDoNotCount) {
  AnswerQueue queue = After(true);
  queue.NoteMessage(true);
  queue.Push(AnswerOf(64));
  EXPECT_EQ(queue.Next(), Step::kWrite);
}

TEST(AnswerQueueTest, LargeAnswersAndThoseOfOtherThreadsAreNotHeld) {
  AnswerQueue large = After(true), elsewhere = After(true);
  large.Push(AnswerOf(4097));
  EXPECT_EQ(large.Next(), Step::kWrite);
  elsewhere.Push(AnswerOf(64, 0, /*may_be_held=*/false));
  EXPECT_EQ(elsewhere.Next(), Step::kWrite);
}

TEST(AnswerQueueTest, AllButTheFirstCanBeDroppedWhileThatIsWritten) {
  AnswerQueue queue = After(true);
  queue.Push(AnswerOf(64, 1));
  EXPECT_TRUE(queue.CanDrop());
  EXPECT_EQ(queue.Next(), Step::kHold);
  EXPECT_FALSE(queue.CanDrop());
  queue.Push(AnswerOf(64, 2));
  EXPECT_EQ(queue.Drop(), 2);
  EXPECT_FALSE(queue.CanDrop());
  queue.EndHold();
  EXPECT_TRUE(queue.CanDrop());
  EXPECT_EQ(queue.Next(), Step::kWrite);
  EXPECT_EQ(queue.EndWrite(), 1);
  EXPECT_EQ(queue.Next(), Step::kNothing);
}

}  // namespace
}  // namespace phasor::rpc
