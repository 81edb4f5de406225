// SPDX-License-Identifier: Apache-2.0
// Tests that streams answer all requests in order, survive errors, and end when the server does.
#include "server/oip/infer_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "inference/grpc_service.grpc.pb.h"
#include "tests/server/oip/requests.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/running_server.h"

namespace phasor::oip {
namespace {

using Stream =
    grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelStreamInferResponse>;

class InferStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<Stream> Open() { return stub_->ModelStreamInfer(&context_); }

  const std::unique_ptr<Server> server_ = testing::StartServer();
  const std::unique_ptr<inference::GRPCInferenceService::Stub> stub_ =
      inference::GRPCInferenceService::NewStub(testing::NewChannel(server_->listeners()[0]));
  testing::TestContext context_;
};

TEST_F(InferStreamTest, AnswersComeInOrderWithTheirIds) {
  const auto stream = Open();
  for (int i = 0; i < 20; ++i) {
    inference::ModelInferRequest request = EncodeAt({i});
    request.set_id(std::to_string(i));
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  inference::ModelStreamInferResponse response;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.error_message(), "");
    EXPECT_EQ(response.infer_response().id(), std::to_string(i));
    EXPECT_TRUE(response.infer_response().parameters().at("triton_final_response").bool_param());
  }
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(InferStreamTest, AFailedRequestIsToldAndTheStreamGoesOn) {
  const auto stream = Open();
  inference::ModelInferRequest wrong = EncodeAt({1});
  wrong.set_id("wrong");
  wrong.set_model_name("bert");
  ASSERT_TRUE(stream->Write(wrong));
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_NE(response.error_message().find("'bert' is not found"), std::string::npos);
  EXPECT_EQ(response.infer_response().id(), "wrong");
  ASSERT_TRUE(stream->Write(EncodeAt({1})));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.error_message(), "");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(InferStreamTest, AFailedRequestEndsAStreamThatWantsStatuses) {
  context_.AddMetadata("triton_grpc_error", "true");
  const auto stream = Open();
  inference::ModelInferRequest wrong = EncodeAt({1});
  wrong.set_model_name("bert");
  ASSERT_TRUE(stream->Write(wrong));
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(InferStreamTest, AnOpenStreamDoesNotHoldUpTheShutdown) {
  const auto stream = Open();
  ASSERT_TRUE(stream->Write(EncodeAt({1})));
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(server_->Shutdown());
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(context_.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
}

class IdleInferStreamTest : public ::testing::Test {
 protected:
  IdleInferStreamTest() {
    ServerOptions options = testing::TestOptions();
    options.stream_idle_timeout = absl::Seconds(1);
    server_ = testing::StartServer(options, std::make_unique<testing::BorrowedBackend>(&backend_));
    stub_ = inference::GRPCInferenceService::NewStub(testing::NewChannel(server_->listeners()[0]));
  }
  // Opens a stream, sends nothing, and waits for its end.
  void WaitForAnIdleStream() {
    testing::TestContext context;
    const grpc::Status status = stub_->ModelStreamInfer(&context)->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(status.error_message().find("stream: nothing received for 1s"), 0u);
  }

  FakeBackend backend_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

TEST_F(IdleInferStreamTest, AStreamThatSendsNothingEnds) { WaitForAnIdleStream(); }

TEST_F(IdleInferStreamTest, AStreamThatIsOwedAnAnswerIsNotIdle) {
  backend_.Hold();
  testing::TestContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(EncodeAt({1})));
  backend_.WaitForRuns(1);
  for (int i = 0; i < 2; ++i) WaitForAnIdleStream();  // the time-out passes, and again
  backend_.Release();
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.error_message(), "");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(FullInferStreamTest, ARequestWaitsForRoomAsItemsOfOtherStreamsDo) {
  FakeBackend backend;
  ServerOptions options = testing::TestOptions();
  options.max_inflight_bytes = 1 << 20;
  options.inline_bytes = 0;
  options.stream_idle_timeout = absl::Seconds(1);
  const auto server =
      testing::StartServer(options, std::make_unique<testing::BorrowedBackend>(&backend));
  const auto stub =
      inference::GRPCInferenceService::NewStub(testing::NewChannel(server->listeners()[0]));
  const inference::ModelInferRequest request = EncodeAt(std::vector<int64_t>(15000));  // 600 kB
  backend.Hold();
  std::thread caller([&] {
    testing::TestContext context;
    inference::ModelInferResponse response;
    EXPECT_TRUE(stub->ModelInfer(&context, request, &response).ok());
  });
  backend.WaitForRuns(1);
  testing::TestContext context;
  const auto stream = stub->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(request));
  testing::TestContext idle;  // its end says that the server has had time to read the request
  EXPECT_FALSE(stub->ModelStreamInfer(&idle)->Finish().ok());
  backend.Release();
  inference::ModelStreamInferResponse response;
  EXPECT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.error_message(), "");
  caller.join();
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(InferStreamTest, ACallerThatGoesAwayLeavesNothingBehind) {
  const auto stream = Open();
  ASSERT_TRUE(stream->Write(EncodeAt({1})));
  context_.TryCancel();
  inference::ModelStreamInferResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_->Shutdown());
}

}  // namespace
}  // namespace phasor::oip
