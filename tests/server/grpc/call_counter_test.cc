// SPDX-License-Identifier: Apache-2.0
// Tests the counting of calls: first by hand, then in a real gRPC server in this process.
#include "server/grpc/call_counter.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/grpc/access.h"
#include "server/grpc/health_service.h"
#include "tests/support/empty_call.h"

namespace phasor::rpc {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

TEST(CallCounterTest, WithoutCallsNothingIsWaitedFor) {
  CallCounter calls;
  calls.StartDraining();
  EXPECT_TRUE(calls.WaitForEarlyCalls(absl::ZeroDuration()));
}

TEST(CallCounterTest, WaitsForEarlyCallsOnly) {
  CallCounter calls;
  grpc::CallbackServerContext* const early = calls.NewCallbackServerContext();
  calls.StartDraining();
  grpc::CallbackServerContext* const late = calls.NewCallbackServerContext();
  EXPECT_TRUE(Refusal(early).ok());
  EXPECT_EQ(Refusal(late), Draining());
  EXPECT_FALSE(calls.WaitForEarlyCalls(absl::ZeroDuration()));
  std::thread release([&calls, early] { calls.Release(early); });
  EXPECT_TRUE(calls.WaitForEarlyCalls(absl::InfiniteDuration()));
  release.join();
  calls.Release(late);
}

// gRPC gives back the contexts of unknown methods too, which it has made itself.
TEST(CallCounterTest, UnknownMethodsAreUnimplementedAndNotCounted) {
  HealthService health({});
  grpc::ServerBuilder builder;
  auto owned = std::make_unique<CallCounter>();
  CallCounter* const calls = owned.get();
  builder.SetContextAllocator(std::move(owned));
  builder.RegisterService(&health);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  grpc::GenericStub stub(server->InProcessChannel({}));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    EXPECT_EQ(testing::CallEmpty(stub, "no.Service/Method", &context).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  calls->StartDraining();
  EXPECT_TRUE(calls->WaitForEarlyCalls(absl::ZeroDuration()));
  server->Shutdown();
}

TEST(CallCounterTest, ContextOfSomebodyElseIsNotLate) {
  grpc::CallbackServerContext context;
  EXPECT_TRUE(Refusal(&context).ok());
}

TEST(CallCounterTest, CountsAnsweredAndCancelledCallsOut) {
  HealthService health({});
  grpc::ServerBuilder builder;
  auto owned = std::make_unique<CallCounter>();
  CallCounter* const calls = owned.get();
  builder.SetContextAllocator(std::move(owned));
  builder.RegisterService(&health);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = Health::NewStub(server->InProcessChannel({}));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext checked;
    HealthCheckResponse response;
    EXPECT_TRUE(stub->Check(&checked, HealthCheckRequest(), &response).ok());
    grpc::ClientContext watched;
    const auto reader = stub->Watch(&watched, HealthCheckRequest());
    if (i % 2 == 0) (void)reader->Read(&response);
    watched.TryCancel();
    (void)reader->Finish();
  }
  grpc::ClientContext open;
  const auto reader = stub->Watch(&open, HealthCheckRequest());
  HealthCheckResponse response;
  EXPECT_TRUE(reader->Read(&response));
  calls->StartDraining();
  EXPECT_FALSE(calls->WaitForEarlyCalls(absl::ZeroDuration()));
  open.TryCancel();
  EXPECT_TRUE(calls->WaitForEarlyCalls(absl::InfiniteDuration()));
  (void)reader->Finish();
  server->Shutdown();
}

}  // namespace
}  // namespace phasor::rpc
