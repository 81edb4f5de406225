// SPDX-License-Identifier: Apache-2.0
// Tests peers that neither acknowledge SETTINGS nor take answers: limits hold, and bytes are freed.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "inference/grpc_service.pb.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "proto/grpc_version.h"
#include "tests/support/eventually.h"
#include "tests/support/http2_frames.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using ::testing::AnyOf;
using testing::CallBlock;
using testing::CallHeaders;
using testing::CallsSeen;
using testing::Eventually;
using testing::Frame;
using testing::FrameType;
using ::testing::HasSubstr;
using testing::kEndHeaders;
using testing::kEndStream;
using testing::MessageData;
using testing::NewChannel;
using testing::ReadFrames;
using testing::Send;
using v1::PositionEmbeddingService;

constexpr char kWatchPath[] = "/grpc.health.v1.Health/Watch";
constexpr char kReflectionPath[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

class OpenCallsTest : public ::testing::Test {
 protected:
  void Start() { server_ = testing::StartServer(options_); }
  FileDescriptor Connect() { return ConnectTo(server_->listeners()[0]); }

  // Of `bytes` in a call of its own.
  grpc::StatusCode Encode(int64_t bytes) {
    testing::TestContext context;
    v1::EncodeResponse response;
    return PositionEmbeddingService::NewStub(NewChannel(server_->listeners()[0]))
        ->Encode(&context, testing::EncodeRequestOf(bytes / 32), &response)
        .error_code();
  }

  ServerOptions options_ = testing::TestOptions();
  std::unique_ptr<Server> server_;
};

constexpr int64_t kAnswerBytes = 512 << 10;

std::string StreamEncodeOf(int64_t bytes) {
  v1::StreamEncodeRequest request;
  request.set_id(1);
  *request.mutable_item() = testing::EncodeOf(bytes / 32);
  return request.SerializeAsString();
}

// With values in place of raw bytes.
std::string InferOf(int64_t bytes) {
  constexpr int64_t kDim = 8192;
  inference::ModelInferRequest request;
  request.set_model_name("transformer");
  (*request.mutable_parameters())["dim"].set_int64_param(kDim);
  auto* const input = request.add_inputs();
  input->set_name("POSITIONS");
  input->set_datatype("INT64");
  input->add_shape(bytes / 4 / kDim);
  for (int64_t i = 0; i < input->shape(0); ++i) input->mutable_contents()->add_int64_contents(i);
  return request.SerializeAsString();
}

struct UntakenCase {
  const char* name;
  std::string path;
  std::string message;
  uint8_t flags;
};

class UntakenAnswerTest : public OpenCallsTest,
                          public ::testing::WithParamInterface<UntakenCase> {};

TEST_P(UntakenAnswerTest, GivesItsBytesBack) {
  constexpr int kCalls = 8;
  options_.max_inflight_bytes = kCalls * kAnswerBytes + (64 << 10);
  options_.answer_timeout = absl::Milliseconds(100);
  options_.stream_idle_timeout = absl::ZeroDuration();
  options_.max_connection_age = absl::ZeroDuration();
  Start();
  const FileDescriptor peer = Connect();
  ASSERT_TRUE(Send(peer, testing::kHelloWithoutWindow));
  for (uint32_t stream = 1; stream < 2 * kCalls; stream += 2) {
    ASSERT_TRUE(Send(peer, CallHeaders(kEndHeaders, stream, GetParam().path) +
                               MessageData(GetParam().message, GetParam().flags, stream)));
  }
  std::string rest;
  CallsSeen seen;
  EXPECT_TRUE(Eventually([&] {
    ReadFrames(peer, &rest, &seen);
    return seen.ended.size() == kCalls;
  })) << seen.ended.size()
      << " ended";
  EXPECT_THAT(seen.answered, ::testing::IsEmpty());
  EXPECT_THAT(seen.headers, HasSubstr("answer: not taken within 100ms"));
  EXPECT_TRUE(Eventually([&] { return Encode(kCalls * kAnswerBytes) == grpc::StatusCode::OK; }));
}

INSTANTIATE_TEST_SUITE_P(
    Calls, UntakenAnswerTest,
    ::testing::Values(
        UntakenCase{"Unary", testing::kEncodePath,
                    testing::EncodeRequestOf(kAnswerBytes / 32).SerializeAsString(), kEndStream},
        UntakenCase{"Stream", "/phasor.v1.PositionEmbeddingService/StreamEncode",
                    StreamEncodeOf(kAnswerBytes), 0},
        UntakenCase{"HalfClosedStream", "/phasor.v1.PositionEmbeddingService/StreamEncode",
                    StreamEncodeOf(kAnswerBytes), kEndStream},
        UntakenCase{"ModelInfer", "/inference.GRPCInferenceService/ModelInfer",
                    InferOf(kAnswerBytes), kEndStream},
        UntakenCase{"ModelStreamInfer", "/inference.GRPCInferenceService/ModelStreamInfer",
                    InferOf(kAnswerBytes), 0}),
    [](const auto& param) { return param.param.name; });

// Nor is a stream that is owed nothing once its answers are taken.
TEST_F(OpenCallsTest, CallsWhoseAnswersAreTakenAreNotEnded) {
  options_.answer_timeout = absl::Seconds(2);
  Start();
  testing::TestContext context;
  const auto stub = PositionEmbeddingService::NewStub(NewChannel(server_->listeners()[0]));
  const auto stream = stub->StreamEncode(&context);
  v1::StreamEncodeRequest request;
  v1::StreamEncodeResponse response;
  *request.mutable_item() = testing::EncodeOf(1);
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  const absl::Time end = absl::Now() + 2 * options_.answer_timeout;
  while (absl::Now() < end) ASSERT_EQ(Encode(1 << 20), grpc::StatusCode::OK);
  ASSERT_TRUE(stream->Write(request));
  EXPECT_TRUE(stream->Read(&response));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// One connection that acknowledges nothing and opens more calls than it may.
class OvercrowdedTest : public OpenCallsTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(OvercrowdedTest, KeepsOnlyAsManyCallsAsAConnectionMayHave) {
  constexpr size_t kLimit = 10;  // twice what it is told
  constexpr size_t kKept = PHASOR_GRPC_BOUNDS_STREAMS ? kLimit / 2 : kLimit;
  constexpr size_t kCalls = 300;
  options_.max_concurrent_streams = kLimit / 2;
  Start();
  const FileDescriptor peer = Connect();
  ASSERT_TRUE(Send(peer, testing::kHello));
  const bool watches = GetParam() == std::string(kWatchPath);
  for (uint32_t stream = 1; stream < 2 * kCalls; stream += 2) {
    // What watches are of comes first; other streams are open without a message.
    const std::string question = watches ? MessageData("", kEndStream, stream) : "";
    ASSERT_TRUE(Send(peer, CallHeaders(kEndHeaders, stream, GetParam()) + question));
  }
  std::string rest;
  CallsSeen seen;
  EXPECT_TRUE(Eventually([&] {
    ReadFrames(peer, &rest, &seen);
    return seen.ended.size() == kCalls - kKept && seen.answered.size() == (watches ? kKept : 0);
  })) << seen.ended.size()
      << " ended";
  EXPECT_EQ(Encode(32), grpc::StatusCode::OK);  // another connection is not affected
}

INSTANTIATE_TEST_SUITE_P(Calls, OvercrowdedTest,
                         ::testing::Values(kWatchPath, kReflectionPath,
                                           "/phasor.v1.PositionEmbeddingService/StreamEncode",
                                           "/phasor.v1.TableService/CreateTable",
                                           "/inference.GRPCInferenceService/ModelStreamInfer"),
                         [](const auto& param) { return std::to_string(param.index); });

// gRPC shows no handler a unary call before its message.
#if PHASOR_GRPC_BOUNDS_STREAMS
TEST_F(OpenCallsTest, OfManyCallsWhoseMessagesNeverComeFewAreKept) {
  options_.max_concurrent_streams = 5;
  Start();
  // One peer acknowledges SETTINGS, which limits its calls, and one does not.
  for (const std::string& acknowledged : {std::string(), std::string("\0\0\0\4\1\0\0\0\0", 9)}) {
    const FileDescriptor hostile = Connect();
    ASSERT_TRUE(Send(hostile, testing::kHello));
    std::string rest;
    CallsSeen seen;
    ASSERT_TRUE(testing::WaitUntilRead(hostile));
    ASSERT_TRUE(Send(hostile, acknowledged));
    for (uint32_t stream = 1; stream < 60; stream += 2) {
      ASSERT_TRUE(Send(hostile, CallHeaders(kEndHeaders, stream)));
    }
    EXPECT_TRUE(Eventually([&] {
      ReadFrames(hostile, &rest, &seen);
      return seen.ended.size() == 25;
    })) << seen.ended.size()
        << " ended, acknowledged: " << !acknowledged.empty();
    EXPECT_EQ(Encode(32), grpc::StatusCode::OK);
  }
}
#else
TEST_F(OpenCallsTest, APeerWithManyCallsWhoseMessagesNeverComeIsHungUpOn) {
  options_.max_concurrent_streams = 5;
  Start();
  const FileDescriptor modest = Connect();
  const FileDescriptor hostile = Connect();
  ASSERT_TRUE(Send(modest, std::string(testing::kHello) + CallHeaders(kEndHeaders)));
  ASSERT_TRUE(Send(hostile, testing::kHello));
  for (uint32_t stream = 1; stream < 60; stream += 2) {
    if (!Send(hostile, CallHeaders(kEndHeaders, stream))) break;
  }
  EXPECT_TRUE(Eventually([&] { return testing::IsClosed(hostile); }));
  EXPECT_FALSE(testing::IsClosed(modest));
  EXPECT_EQ(Encode(32), grpc::StatusCode::OK);
}
#endif

// gRPC 1.51 takes the bytes for plain ones then. Later releases refuse an encoding that they do not
// know by themselves.
TEST_F(OpenCallsTest, AMessageWithTheMarkOfCompressionIsNotReadAsPlain) {
  Start();
  const std::string encoding =
      std::string("\0\x0dgrpc-encoding", 15) + testing::HpackText("snappy");
  const std::string encode = testing::EncodeRequestOf(1).SerializeAsString();
  for (const auto& [path, message] : std::vector<std::pair<std::string, std::string>>{
           {testing::kEncodePath, encode},
           {"/phasor.v1.PositionEmbeddingService/GetServerInfo", ""},
           {"/phasor.v1.PositionEmbeddingService/StreamEncode", StreamEncodeOf(32)},
           {"/inference.GRPCInferenceService/ModelInfer", InferOf(8192 * 4)},
           {"/inference.GRPCInferenceService/ModelStreamInfer", InferOf(8192 * 4)},
           {kWatchPath, ""}}) {
    for (const std::string& headers : {CallBlock(path), CallBlock(path) + encoding}) {
      const FileDescriptor peer = Connect();
      ASSERT_TRUE(Send(
          peer, std::string(testing::kHello) + Frame(FrameType::kHeaders, kEndHeaders, headers) +
                    testing::MessageData(message, kEndStream, 1, /*compressed=*/true)));
      std::string rest;
      CallsSeen seen;
      EXPECT_TRUE(Eventually([&] {
        ReadFrames(peer, &rest, &seen);
        return !seen.ended.empty();
      })) << path;
      EXPECT_THAT(seen.headers, AnyOf(HasSubstr("must not be compressed"),
                                      HasSubstr("Error parsing 'grpc-encoding' metadata")))
          << path;
      EXPECT_TRUE(seen.answered.empty()) << path;
    }
  }
}

TEST_F(OpenCallsTest, LargeMetadataIsRefusedWhateverIsAcknowledged) {
  Start();
  const FileDescriptor peer = Connect();
  const std::string block = CallBlock(testing::kEncodePath) + std::string("\0\3x-a", 5) +
                            testing::HpackText(std::string(options_.max_metadata_bytes, 'y'));
  const std::string message = testing::EncodeRequestOf(1).SerializeAsString();
  ASSERT_TRUE(Send(peer, std::string(testing::kHello) +
                             Frame(FrameType::kHeaders, 0, block.substr(0, 100)) +
                             Frame(FrameType::kContinuation, kEndHeaders, block.substr(100)) +
                             MessageData(message, kEndStream)));
  std::string rest;
  CallsSeen seen;
  EXPECT_TRUE(Eventually([&] {
    ReadFrames(peer, &rest, &seen);
    return seen.ended.size() == 1;
  }));
  EXPECT_THAT(seen.answered, ::testing::IsEmpty());
  EXPECT_THAT(seen.headers, HasSubstr("metadata: "));
}

}  // namespace
}  // namespace phasor
