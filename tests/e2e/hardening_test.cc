// SPDX-License-Identifier: Apache-2.0
// Tests that a hostile or careless client cannot harm a server.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;
using testing::NewChannel;
using testing::StartServer;
using testing::TestContext;
using testing::TestOptions;
using v1::PositionEmbeddingService;

class HardeningTest : public ::testing::Test {
 protected:
  void Start() { server_ = StartServer(options_); }
  std::string address() const { return server_->listeners()[0]; }

  static grpc::Status Encode(const std::shared_ptr<grpc::Channel>& channel, int64_t count = 1,
                             grpc::ClientContext* context = nullptr) {
    TestContext own;
    if (context == nullptr) context = &own;
    v1::EncodeResponse response;
    return PositionEmbeddingService::NewStub(channel)->Encode(
        context, testing::EncodeRequestOf(count), &response);
  }

  ServerOptions options_ = TestOptions();
  std::unique_ptr<Server> server_;
};

TEST_F(HardeningTest, LargeMetadataIsRefused) {
  Start();
  TestContext context;
  context.AddMetadata("x-large", std::string(9 << 10, 'x'));
  const grpc::Status status = Encode(NewChannel(address()), 1, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  TestContext small;
  small.AddMetadata("x-small", std::string(4 << 10, 'x'));
  // gRPC may close the connection of the refused call.
  EXPECT_TRUE(Encode(NewChannel(address()), 1, &small).ok());
}

TEST_F(HardeningTest, OversizeRequestIsResourceExhaustedAndTheConnectionLives) {
  options_.max_message_bytes = 1 << 20;
  Start();
  const auto channel = NewChannel(address());
  v1::ApplyRoPERequest request;
  request.add_raw(std::string(2 << 20, 'x'));
  TestContext context;
  v1::ApplyRoPEResponse response;
  const grpc::Status status =
      PositionEmbeddingService::NewStub(channel)->ApplyRoPE(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_TRUE(Encode(channel).ok());
}

TEST_F(HardeningTest, OversizeResponseIsRefusedBeforeMemoryIsTaken) {
  options_.max_message_bytes = 1 << 20;
  Start();
  const auto channel = NewChannel(address());
  EXPECT_EQ(Encode(channel, 1 << 20).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Encode(channel).ok());
}

TEST_F(HardeningTest, CallsBeyondTheByteBudgetAreRefused) {
  options_.max_inflight_bytes = 1 << 20;
  Start();
  const auto channel = NewChannel(address());
  const grpc::Status status = Encode(channel, 1 << 16);  // 2 MiB
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("1048576"));
  EXPECT_TRUE(Encode(channel).ok());
}

TEST_F(HardeningTest, AConnectionRunsOnlyItsShareOfCalls) {
  options_.max_concurrent_streams = 2;
  Start();
  const auto channel = NewChannel(address());
  const auto stub = Health::NewStub(channel);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<HealthCheckResponse>>> watches;
  HealthCheckResponse response;
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<TestContext>());
    watches.push_back(stub->Watch(contexts.back().get(), HealthCheckRequest()));
    ASSERT_TRUE(watches.back()->Read(&response));
  }
  TestContext third(std::chrono::milliseconds(300));
  EXPECT_EQ(stub->Check(&third, HealthCheckRequest(), &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Encode(NewChannel(address())).ok());  // another connection is not affected
  contexts[0]->TryCancel();
  (void)watches[0]->Finish();
  EXPECT_TRUE(Encode(channel).ok());
  contexts[1]->TryCancel();
  (void)watches[1]->Finish();
}

TEST_F(HardeningTest, ConnectionThatNeverSpeaksIsClosed) {
  options_.handshake_timeout = absl::Seconds(1);
  Start();
  const FileDescriptor silent = ConnectTo(address());
  EXPECT_TRUE(WaitForClose(silent.get()));
  EXPECT_TRUE(Encode(NewChannel(address())).ok());
}

TEST_F(HardeningTest, ConnectionThatDribblesItsPrefaceIsClosed) {
  options_.handshake_timeout = absl::Seconds(1);
  Start();
  const FileDescriptor slow = ConnectTo(address());
  ASSERT_EQ(write(slow.get(), "PRI * HT", 8), 8);
  EXPECT_TRUE(WaitForClose(slow.get()));
}

TEST_F(HardeningTest, BytesThatAreNotHttp2CloseTheConnectionOnly) {
  Start();
  const FileDescriptor web = ConnectTo(address());
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(write(web.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(WaitForClose(web.get()));
  EXPECT_TRUE(Encode(NewChannel(address())).ok());
}

TEST_F(HardeningTest, IdleConnectionsAreClosed) {
  options_.max_connection_idle = absl::Seconds(1);
  Start();
  const auto channel = NewChannel(address());
  ASSERT_TRUE(Encode(channel).ok());
  // The channel leaves READY when the server hangs up.
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(30);
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, deadline));
  EXPECT_TRUE(Encode(channel).ok());
}

TEST_F(HardeningTest, ConnectionsOverTheCapAreTurnedAwayUntilOneLeaves) {
  options_.max_connections = 2;
  Start();
  FileDescriptor first = ConnectTo(address());
  const FileDescriptor second = ConnectTo(address());
  // The third may be seen before the first two are counted, never after.
  FileDescriptor third = ConnectTo(address());
  EXPECT_TRUE(WaitForClose(third.get()));
  first.Close();
  // gRPC notices the hang-up of the first; clients retry until then.
  grpc::Status status = grpc::Status::CANCELLED;
  for (int i = 0; i < 200 && !status.ok(); ++i) status = Encode(NewChannel(address()));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// Fills the process's file descriptors, with connections first.
TEST_F(HardeningTest, ServesAgainAfterFileDescriptorsRanOut) {
  Start();
  ASSERT_TRUE(Encode(NewChannel(address())).ok());
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlimit low = {120, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    std::vector<FileDescriptor> clients;
    for (int i = 0; i < 200; ++i) {
      FileDescriptor client = ConnectTo(address());
      if (!client.valid()) break;  // this side has run out too
      clients.push_back(std::move(client));
    }
    EXPECT_LT(clients.size(), 200u);
    std::vector<FileDescriptor> fill;
    for (FileDescriptor fd(dup(0)); fd.valid(); fd = FileDescriptor(dup(0))) {
      fill.push_back(std::move(fd));
    }
    ASSERT_FALSE(fill.empty() && clients.empty());
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  grpc::Status status = grpc::Status::CANCELLED;
  for (int i = 0; i < 200 && !status.ok(); ++i) status = Encode(NewChannel(address()));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace phasor
