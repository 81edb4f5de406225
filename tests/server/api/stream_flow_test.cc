// SPDX-License-Identifier: Apache-2.0
// Tests how much of a stream the server reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "server/api/stream.h"
#include "tests/server/api/rope_stream.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::RopeRequestOf;

TEST(StreamFlowTest, ACallerThatDoesNotReadIsNotReadFrom) {
  TestServer server;
  RopeStream stream(&server);
  constexpr int kItems = 100;
  constexpr int64_t kTokens = 22000;  // 2 MiB, and an answer of 2 MiB
  constexpr int64_t kCost = 2 * kTokens * 96;
  constexpr int kTaken = static_cast<int>((kMaxStreamBytes + kCost - 1) / kCost);
  std::thread writer([&] {
    for (int i = 0; i < kItems; ++i) EXPECT_TRUE(stream.WriteItem(i, kTokens));
    stream.WritesDone();
  });
  server.backend().WaitForRuns(kTaken);
  EXPECT_LE(server.engine().stats().inflight_bytes, kMaxStreamBytes + 2 * kCost);
  EXPECT_EQ(server.backend().runs(), kTaken);
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(stream.left(), kItems);
  writer.join();
  ExpectNothingLeft(server);
}

TEST(StreamFlowTest, AStreamOwesOnlySoManyAnswers) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.inline_bytes = 0;
  TestServer server(options);
  server.backend().Hold();
  RopeStream stream(&server);
  std::thread writer([&] {
    for (int i = 0; i < 2 * kMaxStreamMessages; ++i) EXPECT_TRUE(stream.WriteItem(i, 1));
    stream.WritesDone();
  });
  WaitUntil([&] { return server.engine().stats().calls_queued >= kMaxStreamMessages; });
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(server.Call("GetServerInfo", "").ok());
  EXPECT_EQ(server.engine().stats().calls_queued, kMaxStreamMessages);
  server.backend().Release();
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(stream.left(), 2 * kMaxStreamMessages);
  writer.join();
  ExpectNothingLeft(server);
}

TEST(StreamFlowTest, AFullBudgetDelaysItemsAndRefusesNone) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.max_inflight_bytes = 1 << 20;
  TestServer server(options);
  RopeStream streams[] = {RopeStream(&server), RopeStream(&server), RopeStream(&server)};
  server.backend().Hold();
  for (RopeStream& stream : streams) {
    ASSERT_TRUE(stream.WriteItem(1, 5000));  // 960 000 bytes
  }
  server.backend().WaitForRuns(1);  // before, two may wait while none has room
  WaitUntil([&] { return server.engine().stats().waiting_calls == 2; });
  EXPECT_EQ(server.Call("ApplyRoPE", RopeRequestOf(5000).SerializeAsString()).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  server.backend().Release();
  // All at once: whichever holds the budget must be read before the others get theirs.
  std::vector<std::thread> readers;
  for (RopeStream& stream : streams) {
    readers.emplace_back([&stream] {
      stream.WritesDone();
      EXPECT_EQ(stream.Read().result().status().code(), 0);
      EXPECT_TRUE(stream.Finish().ok());
    });
  }
  for (std::thread& reader : readers) reader.join();
  ExpectNothingLeft(server);
}

// A caller with unread answers gets no more memory while others have hardly any.
TEST(StreamFlowTest, WhileTheBudgetIsScarceMessagesStayWithTheirSenders) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.max_inflight_bytes = 1 << 20;
  TestServer server(options);
  server.backend().Hold();
  RopeStream owed(&server);
  ASSERT_TRUE(owed.WriteItem(1, 5000));  // 960 000 bytes
  WaitUntil([&] { return server.engine().stats().waiting_readers == 1; });
  std::thread writer([&] { EXPECT_TRUE(owed.WriteItem(2, 100)); });
  const int64_t held = server.engine().stats().inflight_bytes;
  // Who is owed nothing is read from: its item has come, and its end is seen.
  RopeStream waiting(&server);
  ASSERT_TRUE(waiting.WriteItem(3, 5000));
  WaitUntil([&] { return server.engine().stats().waiting_calls == 1; });
  RopeStream empty(&server);
  empty.WritesDone();
  EXPECT_TRUE(empty.Finish().ok());
  EXPECT_LT(server.engine().stats().inflight_bytes, held + 485'000);  // 480 000 are item 3
  server.backend().Release();
  EXPECT_EQ(owed.Read().id(), 1);
  writer.join();
  EXPECT_EQ(owed.Read().id(), 2);
  EXPECT_EQ(waiting.Read().id(), 3);
  for (RopeStream* stream : {&owed, &waiting}) {
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
  ExpectNothingLeft(server);
}

// What was kept free for its next message is not kept while its caller says nothing.
TEST(StreamFlowTest, AQuietStreamHoldsNoRoom) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.max_inflight_bytes = 1 << 20;
  TestServer server(options);
  server.backend().Hold();
  RopeStream stream(&server);
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(stream.WriteItem(1, 5000));  // 960 000 bytes
    WaitUntil([&] { return server.engine().stats().waiting_readers == 1; });
    server.backend().Release();
    EXPECT_EQ(stream.Read().id(), 1);
    WaitUntil([&] { return server.engine().stats().waiting_readers == 0; });
    WaitUntil([&] { return server.engine().stats().inflight_bytes == 0; });
    server.backend().Hold();
  }
  server.backend().Release();
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
  ExpectNothingLeft(server);
}

TEST(StreamFlowTest, AnEndedStreamAsksForNoMoreRoom) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.max_inflight_bytes = 1 << 20;
  TestServer server(options);
  server.backend().Hold();
  RopeStream stream(&server);
  ASSERT_TRUE(stream.WriteItem(1, 5000));
  WaitUntil([&] { return server.engine().stats().waiting_readers == 1; });
  stream.context().TryCancel();
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  server.backend().Release();
  ExpectNothingLeft(server);
}

}  // namespace
}  // namespace phasor::rpc
