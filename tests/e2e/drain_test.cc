// SPDX-License-Identifier: Apache-2.0
// Tests shutdown under load: every request that has arrived is answered.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using testing::NewChannel;
using testing::StartServer;
using testing::TestContext;
using testing::TestOptions;
using v1::PositionEmbeddingService;

// Calls until it is refused.
class Caller {
 public:
  Caller(const std::string& address, int64_t tokens)
      : channel_(NewChannel(address)), request_(testing::RopeRequestOf(tokens)) {}

  // One call; false when it was refused.
  bool Call() {
    TestContext context;
    v1::ApplyRoPEResponse response;
    const grpc::Status status =
        PositionEmbeddingService::NewStub(channel_)->ApplyRoPE(&context, request_, &response);
    if (status.ok()) {
      EXPECT_EQ(response.raw_size(), 2);
      EXPECT_EQ(response.raw(0).size(), request_.raw(0).size());
      ++answered_;
    } else {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    }
    return status.ok();
  }

  int answered() const { return answered_; }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const v1::ApplyRoPERequest request_;
  std::atomic<int> answered_ = 0;
};

class DrainTest : public ::testing::Test {
 protected:
  // On a borrowed backend, which a test can look at after the server is gone.
  void Start() {
    server_ = StartServer(options_, std::make_unique<testing::BorrowedBackend>(&backend_));
  }
  std::string address() const { return server_->listeners()[0]; }

  ServerOptions options_ = TestOptions();
  FakeBackend backend_;
  std::unique_ptr<Server> server_;
};

TEST_F(DrainTest, EveryCallThatTheServerComputedReachedItsCaller) {
  Start();
  std::vector<std::unique_ptr<Caller>> callers;
  // 96 bytes a token: inline calls, queued calls, and calls of many frames.
  for (const int64_t tokens : {1, 1, 1000, 1000, 50000, 50000}) {
    callers.push_back(std::make_unique<Caller>(address(), tokens));
  }
  std::vector<std::thread> threads;
  for (const auto& caller : callers) {
    threads.emplace_back([&caller] {
      while (caller->Call()) {
      }
    });
  }
  for (const auto& caller : callers) {
    while (caller->answered() < 3) std::this_thread::yield();
  }
  EXPECT_TRUE(server_->Shutdown());
  for (std::thread& thread : threads) thread.join();
  int answered = 0;
  for (const auto& caller : callers) answered += caller->answered();
  EXPECT_EQ(answered, backend_.runs());
}

TEST_F(DrainTest, CallInFlightIsAnsweredAndALateOneIsRefused) {
  Start();
  Caller early(address(), 1000);
  Caller late(address(), 1);
  ASSERT_TRUE(late.Call());  // connects
  backend_.Hold();
  std::thread in_flight([&early] { EXPECT_TRUE(early.Call()); });
  backend_.WaitForRuns(2);
  std::thread shutdown([this] { EXPECT_TRUE(server_->Shutdown()); });
  while (ConnectTo(address()).valid()) std::this_thread::yield();  // the door is closed
  backend_.Release();
  while (late.Call()) {
  }
  in_flight.join();
  shutdown.join();
}

TEST_F(DrainTest, CallThatTakesTooLongIsCancelledAndReported) {
  options_.drain_timeout = absl::Milliseconds(100);
  Start();
  backend_.Hold();
  const auto channel = NewChannel(address());
  std::thread in_flight([&channel] {
    TestContext context;
    v1::ApplyRoPEResponse response;
    EXPECT_FALSE(PositionEmbeddingService::NewStub(channel)
                     ->ApplyRoPE(&context, testing::RopeRequestOf(1000), &response)
                     .ok());
  });
  backend_.WaitForRuns(1);
  std::thread shutdown([this] { EXPECT_FALSE(server_->Shutdown()); });
  in_flight.join();    // although the device is still busy
  backend_.Release();  // a run is never cut short
  shutdown.join();
}

}  // namespace
}  // namespace phasor
