// SPDX-License-Identifier: Apache-2.0
// Tests a whole server: what it refuses to start with, what it serves, how it stops.
#include "server/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/is_serving.h"
#include "tests/support/reflection_call.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"

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

grpc::Status CallEncode(const std::shared_ptr<grpc::Channel>& channel, int64_t count,
                        v1::EncodeResponse* response) {
  TestContext context;
  return PositionEmbeddingService::NewStub(channel)->Encode(
      &context, testing::EncodeRequestOf(count), response);
}

std::string TemporarySocket() {
  std::string directory = ::testing::TempDir() + "/phasorXXXXXX";
  return "unix:" + std::string(mkdtemp(directory.data())) + "/socket";
}

TEST(ServerStartTest, RefusesOptionsOutOfRange) {
  ServerOptions options = TestOptions();
  options.max_batch_items = 0;
  const auto server = Server::Start(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(server.status().message(), HasSubstr("max-batch-items: "));
}

TEST(ServerStartTest, RefusesLeaseSocketsThatNobodyCanReach) {
  for (const auto& [path, what] :
       {std::pair<std::string, std::string>{"a.sock", "an absolute path"},
        {"/" + std::string(200, 'a'), "longer than 107 bytes"}}) {
    ServerOptions options = TestOptions();
    options.lease_socket = path;
    const auto server = Server::Start(options);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(what));
  }
}

TEST(ServerStartTest, AddressInUseIsUnavailable) {
  const auto first = StartServer();
  ServerOptions options = TestOptions();
  options.listen = first->listeners();
  const auto second = Server::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(first->listeners()[0]));
}

TEST(ServerTest, ServesOnTcpAndOnAUnixSocket) {
  ServerOptions options = TestOptions();
  options.listen.push_back(TemporarySocket());
  const auto server = StartServer(options);
  ASSERT_EQ(server->listeners().size(), 2u);
  for (const std::string& address : server->listeners()) {
    v1::EncodeResponse response;
    const grpc::Status status = CallEncode(NewChannel(address), 3, &response);
    ASSERT_TRUE(status.ok()) << address << ": " << status.error_message();
    ASSERT_EQ(response.raw_size(), 1) << address;
    EXPECT_EQ(response.raw(0).size(), 96u) << address;
  }
  const std::string path = server->listeners()[1].substr(5);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  EXPECT_TRUE(server->Shutdown());
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(ServerTest, TellsItsListeners) {
  const auto server = StartServer();
  TestContext context;
  v1::GetServerInfoResponse info;
  const auto stub = PositionEmbeddingService::NewStub(NewChannel(server->listeners()[0]));
  ASSERT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
  EXPECT_THAT(info.SerializeAsString(), HasSubstr(server->listeners()[0]));
}

TEST(ServerTest, HealthOfServerAndServiceIsServing) {
  const auto server = StartServer();
  const auto channel = NewChannel(server->listeners()[0]);
  EXPECT_TRUE(testing::IsServing(channel));
  EXPECT_TRUE(testing::IsServing(channel, "phasor.v1.PositionEmbeddingService"));
}

TEST(ServerTest, WatchSeesTheShutdownAndDoesNotDelayIt) {
  const auto server = StartServer();
  const auto stub = Health::NewStub(NewChannel(server->listeners()[0]));
  TestContext context;
  const auto reader = stub->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  EXPECT_TRUE(server->Shutdown());  // false had it lasted drain_timeout
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(reader->Read(&response));
}

TEST(ServerTest, ServesDuringTheDrainDelayWhileHealthSaysNot) {
  ServerOptions options = TestOptions();
  options.drain_delay = absl::Seconds(4);  // longer than one call takes anywhere
  const auto server = StartServer(options);
  const std::string address = server->listeners()[0];
  const auto health = Health::NewStub(NewChannel(address));
  TestContext context;
  const auto reader = health->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  std::thread shutdown([&server] { EXPECT_TRUE(server->Shutdown()); });
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  v1::EncodeResponse encoded;
  EXPECT_TRUE(CallEncode(NewChannel(address), 1, &encoded).ok());  // over a new connection
  shutdown.join();
  EXPECT_FALSE(CallEncode(NewChannel(address), 1, &encoded).ok());
}

TEST(ServerTest, ShutdownIsIdempotent) {
  const auto server = StartServer();
  EXPECT_TRUE(server->Shutdown());
  EXPECT_TRUE(server->Shutdown());
}

TEST(ServerTest, ReflectionListsTheServices) {
  const auto server = StartServer();
  testing::ReflectionCall call(NewChannel(server->listeners()[0]));
  const std::string services = call.Services();
  EXPECT_THAT(services, HasSubstr("phasor.v1.PositionEmbeddingService"));
  EXPECT_THAT(services, HasSubstr("grpc.health.v1.Health"));
}

}  // namespace
}  // namespace phasor
