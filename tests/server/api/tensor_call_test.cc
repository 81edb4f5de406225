// SPDX-License-Identifier: Apache-2.0
// Tests every way in which a call ends: refused, cancelled or expired in the queue, failed, served.
#include "server/api/tensor_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "tests/server/api/test_server.h"
#include "tests/support/requests.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::EncodeRequestOf;
using ::phasor::testing::RopeRequestOf;
using ::testing::HasSubstr;

// Everything goes through the queue of one worker.
engine::EngineOptions QueueEverything() {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.inline_bytes = 0;
  return options;
}

// A server whose worker is busy until the backend is released.
class BusyServer : public ::testing::Test {
 protected:
  BusyServer() : server_(QueueEverything()) {
    server_.backend().Hold();
    server_.Start("Encode", EncodeRequestOf(1).SerializeAsString(), &first_);
    server_.backend().WaitForRuns(1);
  }

  // Lets the worker go and waits for the call that kept it busy.
  void ReleaseFirst() {
    server_.backend().Release();
    first_.done.WaitForNotification();
    EXPECT_TRUE(first_.status.ok()) << first_.status.error_message();
  }

  // Waits until the engine has dropped `count` queued calls.
  void WaitForDropped(int64_t count) {
    while (true) {
      const engine::EngineStats stats = server_.engine().stats();
      if (stats.calls_cancelled + stats.calls_expired >= count) return;
      std::this_thread::yield();
    }
  }

  PendingCall first_;
  TestServer server_;
};

TEST_F(BusyServer, CancelledCallLeavesTheQueueWithoutRunning) {
  PendingCall second;
  server_.Start("ApplyRoPE", RopeRequestOf(2).SerializeAsString(), &second);
  while (server_.engine().stats().queued_calls == 0) std::this_thread::yield();
  second.context.TryCancel();
  second.done.WaitForNotification();
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::CANCELLED);
  WaitForDropped(1);
  ReleaseFirst();
  EXPECT_EQ(server_.backend().runs(), 1);
}

TEST_F(BusyServer, DeadlineOfTheCallerReachesTheQueue) {
  PendingCall second;
  second.context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_.Start("Encode", EncodeRequestOf(2).SerializeAsString(), &second);
  second.done.WaitForNotification();
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitForDropped(1);
  ReleaseFirst();
  EXPECT_EQ(server_.backend().runs(), 1);
}

TEST_F(BusyServer, QueuedCallIsServedWhenTheWorkerIsFree) {
  PendingCall second;
  server_.Start("ApplyRoPE", RopeRequestOf(2).SerializeAsString(), &second);
  ReleaseFirst();
  second.done.WaitForNotification();
  EXPECT_TRUE(second.status.ok());
  EXPECT_GT(second.response.Length(), 192u);
}

TEST(TensorCallTest, UnavailableSaysWhenToComeBack) {
  TestServer server;
  ASSERT_TRUE(server.engine().Drain(absl::InfiniteFuture()));
  PendingCall call;
  server.Start("Encode", EncodeRequestOf(1).SerializeAsString(), &call);
  call.done.WaitForNotification();
  EXPECT_EQ(call.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto& trailers = call.context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailers.end());
  EXPECT_EQ(pushback->second, "100");
}

TEST(TensorCallTest, OtherErrorsDoNotInviteARetry) {
  TestServer server;
  PendingCall call;
  server.Start("Encode", "", &call);
  call.done.WaitForNotification();
  EXPECT_EQ(call.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(call.context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 0u);
}

// A config_json that is no JSON, so that only what is read before says anything else.
v1::Spec LargeSpec() {
  v1::Spec spec;
  spec.set_config_json(std::string(30 << 10, '['));
  return spec;
}

TEST(TensorCallTest, LargeMessagesAreNotReadWhileTheBudgetIsSpent) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.max_inflight_bytes = 100 << 10;
  TestServer server(options);
  v1::EncodeRequest encode = EncodeRequestOf(1);
  *encode.mutable_item()->mutable_spec() = LargeSpec();
  v1::ResolveSpecRequest resolve;
  *resolve.mutable_spec() = LargeSpec();
  for (const auto& [method, bytes] : {std::pair("Encode", encode.SerializeAsString()),
                                      std::pair("ResolveSpec", resolve.SerializeAsString()),
                                      std::pair("ResolveModel", resolve.SerializeAsString())}) {
    {
      const auto permit = server.engine().Reserve(90 << 10);
      const grpc::Status status = server.Call(method, bytes);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    }
    const grpc::Status status = server.Call(method, bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("spec.config_json: nested deeper"));
    EXPECT_EQ(server.engine().stats().inflight_bytes, 0);
  }
}

// A request of some 30 bytes has an answer of more than a megabyte.
TEST(TensorCallTest, LargeAnswersOfOtherMethodsAreNotSentWhileTheBudgetIsSpent) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.max_inflight_bytes = 8 << 20;
  TestServer server(options);
  v1::ResolveSpecRequest resolve;
  resolve.mutable_spec()->set_preset("timestep-sin-cos");
  resolve.mutable_spec()->set_dim(65536);
  {
    const auto permit = server.engine().Reserve((8 << 20) - (64 << 10));
    const grpc::Status status = server.Call("ResolveSpec", resolve.SerializeAsString());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_EQ(server.engine().stats().calls_refused, 1);
    EXPECT_TRUE(server.Call("GetServerInfo", "").ok());  // which is small
  }
  EXPECT_TRUE(server.Call("ResolveSpec", resolve.SerializeAsString()).ok());
  EXPECT_EQ(server.engine().stats().inflight_bytes, 0);
}

// The plan of the widest spec has more than 1 MiB, which the call keeps.
TEST(TensorCallTest, LargePlansCountAgainstTheBudget) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.max_inflight_bytes = 1 << 20;
  TestServer server(options);
  v1::EncodeRequest request = EncodeRequestOf(1);
  request.mutable_item()->mutable_spec()->set_dim(65536);
  const grpc::Status status = server.Call("Encode", request.SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("request and response: "));
}

TEST(TensorCallTest, BackendFailureIsTheStatusOfTheCall) {
  for (const int64_t inline_bytes : {0, 1 << 20}) {
    engine::EngineOptions options = TestServer::SmallEngine();
    options.inline_bytes = inline_bytes;
    TestServer server(options);
    server.backend().FailWith(absl::InternalError("device: lost"));
    const grpc::Status status = server.Call("Encode", EncodeRequestOf(1).SerializeAsString());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_THAT(status.error_message(), HasSubstr("device: lost"));
  }
}

TEST(TensorCallTest, UnaryMessageHasRoomForTheTensorsOfOneItemOnly) {
  TestServer server;
  v1::EncodeRequest request = EncodeRequestOf(1);
  for (int i = 0; i < 1000; ++i) request.add_raw("");
  const grpc::Status status = server.Call("Encode", request.SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("raw: too many entries"));
}

TEST(TensorCallTest, ItemWithAsManyTensorsAsAllowedIsServed) {
  TestServer server;
  v1::ApplyRoPERequest request = RopeRequestOf(1);
  testing::SetShape(request.mutable_item()->mutable_positions()->mutable_tensor(), v1::DTYPE_INT32,
                    {1});
  testing::SetShape(request.mutable_item()->mutable_from_positions()->mutable_tensor(),
                    v1::DTYPE_INT32, {1});
  request.mutable_item()->set_direction(v1::DIRECTION_DELTA);
  const v1::RopeTensor tensor = request.item().tensors(1);
  request.clear_raw();
  request.add_raw(std::string(4, '\0'));
  request.mutable_item()->clear_tensors();
  for (int i = 0; i < 64; ++i) {
    *request.mutable_item()->add_tensors() = tensor;
    request.add_raw(std::string(32, 'k'));
  }
  request.add_raw(std::string(4, '\0'));
  const grpc::Status status = server.Call("ApplyRoPE", request.SerializeAsString());
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(TensorCallTest, ManyConcurrentCallsAllGetTheirOwnAnswer) {
  engine::EngineOptions options = TestServer::SmallEngine();
  options.workers = 3;
  options.inline_bytes = 1000;
  TestServer server(options);
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 200; ++i) {
    calls.push_back(std::make_unique<PendingCall>());
    server.Start("Encode", EncodeRequestOf(i).SerializeAsString(), calls.back().get());
    if (i % 7 == 3) calls.back()->context.TryCancel();
  }
  for (int i = 0; i < 200; ++i) {
    calls[i]->done.WaitForNotification();
    if (!calls[i]->status.ok()) {
      EXPECT_EQ(calls[i]->status.error_code(), grpc::StatusCode::CANCELLED);
      EXPECT_EQ(i % 7, 3);
      continue;
    }
    EXPECT_GE(calls[i]->response.Length(), static_cast<size_t>(32 * i));
    EXPECT_LE(calls[i]->response.Length(), static_cast<size_t>(32 * i + 200));
  }
}

}  // namespace
}  // namespace phasor::rpc
