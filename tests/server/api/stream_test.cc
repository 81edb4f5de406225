// SPDX-License-Identifier: Apache-2.0
// Tests streams: the same bytes as unary calls, errors per item, what ends them, and that they
// leave nothing behind.
#include "server/api/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/api/open_items.h"
#include "tests/server/api/rope_stream.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::EncodeOf;
using ::phasor::testing::RopeOf;
using ::phasor::testing::RopeRequestOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int kInvalidCode = static_cast<int>(absl::StatusCode::kInvalidArgument);
constexpr int kExhaustedCode = static_cast<int>(absl::StatusCode::kResourceExhausted);
constexpr int kUnavailable = static_cast<int>(absl::StatusCode::kUnavailable);

TEST(StreamTest, ItemsHaveTheBytesOfUnaryCalls) {
  TestServer server;
  RopeStream stream(&server);
  for (const int64_t tokens : {1, 30, 5000}) ASSERT_TRUE(stream.WriteItem(tokens, tokens));
  stream.WritesDone();
  const auto stub = v1::PositionEmbeddingService::NewStub(server.channel());
  for (int i = 0; i < 3; ++i) {
    const v1::StreamApplyRoPEResponse answer = stream.Read();
    grpc::ClientContext context;
    v1::ApplyRoPEResponse unary;
    ASSERT_TRUE(stub->ApplyRoPE(&context, RopeRequestOf(answer.id()), &unary).ok());
    EXPECT_EQ(answer.result().status().code(), 0);
    EXPECT_FALSE(answer.has_chunk());
    ASSERT_EQ(answer.raw_size(), 2);
    EXPECT_EQ(answer.raw(0), unary.raw(0));
    EXPECT_EQ(answer.raw(1), unary.raw(1));
    EXPECT_EQ(answer.result().tensors(1).SerializeAsString(),
              unary.result().tensors(1).SerializeAsString());
    EXPECT_EQ(answer.result().info().spec_fingerprint(), unary.result().info().spec_fingerprint());
  }
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(stream.left(), 0);
  ExpectNothingLeft(server);
}

TEST(StreamTest, EncodeStreamsToo) {
  TestServer server;
  const auto stub = v1::PositionEmbeddingService::NewStub(server.channel());
  grpc::ClientContext context;
  const auto stream = stub->StreamEncode(&context);
  v1::StreamEncodeRequest request;
  request.set_id(4);
  *request.mutable_item() = EncodeOf(100);
  ASSERT_TRUE(stream->Write(request));
  request.set_id(5);
  request.set_chunked(true);
  ASSERT_TRUE(stream->Write(request));
  request.Clear();
  request.set_id(5);
  request.mutable_chunk()->set_tokens(100);
  ASSERT_TRUE(stream->Write(request));
  stream->WritesDone();
  std::map<std::pair<int64_t, bool>, v1::StreamEncodeResponse> answers;  // by id and chunk
  v1::StreamEncodeResponse answer;
  while (stream->Read(&answer)) answers[{answer.id(), answer.has_chunk()}] = answer;
  ASSERT_TRUE(stream->Finish().ok());
  ASSERT_EQ(answers.size(), 3);
  const auto& [item, opening, chunk] =
      std::tie(answers[{4, false}], answers[{5, false}], answers[{5, true}]);
  ASSERT_EQ(item.raw_size(), 1);
  EXPECT_EQ(item.raw(0), std::string(3200, 0x5A));
  EXPECT_EQ(opening.raw_size(), 0);
  EXPECT_EQ(opening.result().output().shape(0), 100);
  ASSERT_EQ(chunk.raw_size(), 1);
  EXPECT_EQ(chunk.raw(0), item.raw(0));
}

// The plan of the widest spec has more than 1 MiB, which the item or its opening keeps.
TEST(StreamTest, LargePlansCountAgainstTheBudget) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.max_inflight_bytes = 1 << 20;
  TestServer server(options);
  const auto stub = v1::PositionEmbeddingService::NewStub(server.channel());
  grpc::ClientContext context;
  const auto stream = stub->StreamEncode(&context);
  v1::StreamEncodeRequest request;
  *request.mutable_item() = EncodeOf(1);
  request.mutable_item()->mutable_spec()->set_dim(65536);
  for (const bool chunked : {false, true}) {
    request.set_chunked(chunked);
    ASSERT_TRUE(stream->Write(request));
    v1::StreamEncodeResponse answer;
    ASSERT_TRUE(stream->Read(&answer));
    EXPECT_EQ(answer.result().status().code(), kExhaustedCode);
    EXPECT_THAT(answer.result().status().message(), HasSubstr("request and response: "));
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(StreamTest, AnItemsErrorLeavesTheStreamOpen) {
  TestServer server;
  RopeStream stream(&server);
  v1::StreamApplyRoPERequest wrong;
  wrong.set_id(1);
  *wrong.mutable_item() = RopeOf(2);
  ASSERT_TRUE(stream.Write(wrong));
  v1::StreamApplyRoPEResponse answer = stream.Read();
  EXPECT_EQ(answer.id(), 1);
  EXPECT_EQ(answer.result().status().code(), kInvalidCode);
  EXPECT_THAT(answer.result().status().message(), HasSubstr("raw: 0 entries; must be 2"));
  ASSERT_TRUE(stream.WriteItem(2, 2));
  answer = stream.Read();
  EXPECT_EQ(answer.result().status().code(), 0);
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamTest, WhatIsNoMessageEndsTheStreamAfterWhatIsOwed) {
  TestServer server;
  RopeStream stream(&server);
  ASSERT_TRUE(stream.WriteItem(1, 2));
  v1::StreamApplyRoPERequest huge;
  huge.mutable_item()->mutable_spec()->set_config_json(std::string(1 << 17, ' '));
  ASSERT_TRUE(stream.Write(huge));
  EXPECT_EQ(stream.Read().id(), 1);
  const grpc::Status status = stream.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("metadata (all but raw) is too large"));
}

TEST(StreamTest, HalfCloseStillAnswersWhatIsOwed) {
  TestServer server;
  server.backend().Hold();
  RopeStream stream(&server);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(stream.WriteItem(i, 5000));
  stream.WritesDone();
  server.backend().WaitForRuns(1);
  server.backend().Release();
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(stream.left(), 5);
}

TEST(StreamChunksTest, RunsHaveTheBytesOfTheWhole) {
  TestServer server;
  RopeStream stream(&server);
  ASSERT_TRUE(stream.WriteItem(1, 10));
  const v1::StreamApplyRoPEResponse whole = stream.Read();
  ASSERT_TRUE(stream.Open(2, 10));
  ASSERT_TRUE(stream.WriteRun(2, 0, 4));
  ASSERT_TRUE(stream.WriteRun(2, 4, 6));
  stream.WritesDone();
  const v1::StreamApplyRoPEResponse opened = stream.Read();
  v1::ApplyRoPEResult computed = opened.result();
  computed.mutable_info()->set_backend("fake");  // nothing had computed yet
  EXPECT_EQ(computed.SerializeAsString(), whole.result().SerializeAsString());
  EXPECT_EQ(opened.result().info().backend(), "");
  EXPECT_EQ(opened.raw_size(), 0);
  std::map<int64_t, v1::StreamApplyRoPEResponse> runs;
  for (int i = 0; i < 2; ++i) {
    v1::StreamApplyRoPEResponse run = stream.Read();
    runs[run.chunk().first_token()] = run;
  }
  EXPECT_TRUE(stream.Finish().ok());
  ASSERT_EQ(runs[4].result().tensors_size(), 2);
  EXPECT_EQ(runs[4].result().tensors(0).shape(0), 6);
  EXPECT_EQ(runs[4].chunk().tokens(), 6);
  EXPECT_EQ(runs[0].raw(0) + runs[4].raw(0), whole.raw(0));
  EXPECT_EQ(runs[0].raw(1) + runs[4].raw(1), whole.raw(1));
  ExpectNothingLeft(server);
}

TEST(StreamChunksTest, AWrongRunClosesItsItemOnly) {
  TestServer server;
  RopeStream stream(&server);
  ASSERT_TRUE(stream.Open(1, 10));
  ASSERT_TRUE(stream.Open(2, 10));
  ASSERT_TRUE(stream.WriteRun(1, 5, 5));
  ASSERT_TRUE(stream.WriteRun(1, 0, 5));
  ASSERT_TRUE(stream.WriteRun(2, 0, 10));
  stream.WritesDone();
  std::vector<std::string> errors;
  for (int i = 0; i < 5; ++i) {
    const v1::StreamApplyRoPEResponse answer = stream.Read();
    if (answer.result().status().code() == 0) continue;
    EXPECT_EQ(answer.id(), 1);
    EXPECT_EQ(answer.result().status().code(), kInvalidCode);
    errors.push_back(answer.result().status().message());
  }
  EXPECT_THAT(errors, UnorderedElementsAre(HasSubstr("chunk.first_token: 5; must be 0"),
                                           HasSubstr("id: 1 is not open")));
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamChunksTest, AFailedRunClosesItsItem) {
  TestServer server;
  RopeStream stream(&server);
  ASSERT_TRUE(stream.Open(1, 10));
  stream.Read();
  server.backend().FailWith(absl::InternalError("device lost"));
  ASSERT_TRUE(stream.WriteRun(1, 0, 5));
  EXPECT_THAT(stream.Read().result().status().message(), HasSubstr("device lost"));
  server.backend().FailWith(absl::OkStatus());
  ASSERT_TRUE(stream.WriteRun(1, 5, 5));
  EXPECT_THAT(stream.Read().result().status().message(), HasSubstr("id: 1 is not open"));
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamChunksTest, OpenItemsHaveIdsOfTheirOwnAndALimit) {
  TestServer server;
  RopeStream stream(&server);
  for (int64_t id = 0; id < kMaxChunkedItems; ++id) {
    ASSERT_TRUE(stream.Open(id, 10));
    EXPECT_EQ(stream.Read().result().status().code(), 0);
  }
  ASSERT_TRUE(stream.Open(3, 10));
  EXPECT_THAT(stream.Read().result().status().message(), HasSubstr("id: 3 is open already"));
  ASSERT_TRUE(stream.Open(1000, 10));
  EXPECT_THAT(stream.Read().result().status().message(), HasSubstr("too many chunked items"));
  ASSERT_TRUE(stream.WriteRun(3, 0, 10));
  EXPECT_EQ(stream.Read().result().status().code(), 0);
  for (int i = 0; i < 2; ++i) {  // without tokens, it does not stay open
    ASSERT_TRUE(stream.Open(1000, 0));
    EXPECT_EQ(stream.Read().result().status().code(), 0);
  }
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
  ExpectNothingLeft(server);
}

TEST(StreamEndTest, ACancelledStreamReleasesEverything) {
  TestServer server;
  server.backend().Hold();
  RopeStream stream(&server);
  ASSERT_TRUE(stream.Open(100, 10));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(stream.WriteItem(i, 5000));
  server.backend().WaitForRuns(1);
  stream.context().TryCancel();
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  server.backend().Release();
  ExpectNothingLeft(server);
}

TEST(StreamEndTest, StormsOfCancellationsAndDeadlinesLeaveNothing) {
  TestServer server;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<RopeStream>> streams;
    for (int i = 0; i < 40; ++i) {
      const absl::Duration timeout =
          i % 2 == 0 ? absl::Milliseconds(1 + i) : absl::InfiniteDuration();
      auto& stream = i % 2 == 0
                         ? streams.emplace_back(std::make_unique<RopeStream>(&server, timeout))
                         : streams.emplace_back(std::make_unique<RopeStream>(&server));
      stream->Open(1, 100);
      for (int k = 0; k < 3; ++k) stream->WriteItem(k, 100 + 400 * i);
      stream->WriteRun(1, 0, 50);
      if (i % 2 == 1) stream->context().TryCancel();
    }
    for (const auto& stream : streams) EXPECT_FALSE(stream->Finish().ok());
  }
  ExpectNothingLeft(server);
}

TEST(StreamEndTest, AnIdleStreamEnds) {
  TestServer server(TestServer::SmallEngine(), {}, absl::Seconds(1));
  RopeStream stream(&server);
  ASSERT_TRUE(stream.Open(1, 10));  // owes chunks, but is owed nothing
  stream.Read();
  const grpc::Status status = stream.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("stream: nothing received for 1s"));
  ExpectNothingLeft(server);
}

TEST(StreamEndTest, AStreamThatIsOwedAnAnswerIsNotIdle) {
  TestServer server(TestServer::SmallEngine(), {}, absl::Seconds(1));
  server.backend().Hold();
  RopeStream stream(&server);
  ASSERT_TRUE(stream.WriteItem(1, 5000));
  server.backend().WaitForRuns(1);
  for (int i = 0; i < 2; ++i) {  // the time-out passes, and again
    EXPECT_EQ(RopeStream(&server).Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  server.backend().Release();
  EXPECT_EQ(stream.Read().id(), 1);
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamEndTest, DrainingEndsIdleStreamsAndFinishesOpenItems) {
  TestServer server;
  RopeStream idle(&server);
  RopeStream busy(&server);
  ASSERT_TRUE(idle.WriteItem(1, 1));
  idle.Read();
  ASSERT_TRUE(busy.Open(1, 10));
  busy.Read();
  server.service().DrainStreams();
  EXPECT_EQ(idle.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(busy.WriteItem(2, 10));
  EXPECT_EQ(busy.Read().result().status().code(), kUnavailable);
  ASSERT_TRUE(busy.WriteRun(1, 0, 10));
  EXPECT_EQ(busy.Read().result().status().code(), 0);
  EXPECT_EQ(busy.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(RopeStream(&server).Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  ExpectNothingLeft(server);
}

}  // namespace
}  // namespace phasor::rpc
