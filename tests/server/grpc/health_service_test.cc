// SPDX-License-Identifier: Apache-2.0
// Tests the health protocol through a real gRPC server in this process.
#include "server/grpc/health_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace phasor::rpc {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// A watch of one service.
struct Watched {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;

  // The next status; -1 at the end.
  int Next() {
    HealthCheckResponse response;
    return reader->Read(&response) ? response.status() : -1;
  }
};

class HealthServiceTest : public ::testing::Test {
 protected:
  HealthServiceTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    stub_ = Health::NewStub(server_->InProcessChannel({}));
  }

  grpc::Status Check(const std::string& service, HealthCheckResponse* response) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Check(&context, request, response);
  }
  std::unique_ptr<Watched> Watch(const std::string& service) {
    auto watched = std::make_unique<Watched>();
    HealthCheckRequest request;
    request.set_service(service);
    watched->reader = stub_->Watch(&watched->context, request);
    return watched;
  }

  HealthService health_{{"a.Service"}};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Health::Stub> stub_;
};

TEST_F(HealthServiceTest, AWatchOfAnUnknownNameIsToldSoAndStays) {
  const auto watched = Watch("no.such.Service");
  EXPECT_EQ(watched->Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  health_.StopServing();
  health_.EndWatches();
  EXPECT_EQ(watched->Next(), -1);
  EXPECT_EQ(watched->reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// gRPC would keep it for as long as the watch lives.
TEST_F(HealthServiceTest, AWatchOfAnOverlongNameEnds) {
  const auto watched = Watch(std::string(257, 'x'));
  EXPECT_EQ(watched->Next(), -1);
  const grpc::Status status = watched->reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "service: 257 bytes; must be at most 256");
}

TEST_F(HealthServiceTest, OneServiceMayBeDownAlone) {
  const auto watched = Watch("a.Service");
  EXPECT_EQ(watched->Next(), HealthCheckResponse::SERVING);
  health_.SetServing("a.Service", false);
  EXPECT_EQ(watched->Next(), HealthCheckResponse::NOT_SERVING);
  HealthCheckResponse response;
  EXPECT_TRUE(Check("", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  health_.SetServing("a.Service", true);
  EXPECT_EQ(watched->Next(), HealthCheckResponse::SERVING);
  health_.SetServing("a.Service", false);
  health_.StopServing();
  health_.EndWatches();
  EXPECT_EQ(watched->Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(watched->Next(), -1);
}

TEST_F(HealthServiceTest, CheckKnowsTheServerAndItsServices) {
  for (const std::string service : {"", "a.Service"}) {
    HealthCheckResponse response;
    EXPECT_TRUE(Check(service, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  }
  health_.StopServing();
  for (const std::string service : {"", "a.Service"}) {
    HealthCheckResponse response;
    EXPECT_TRUE(Check(service, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  }
}

TEST_F(HealthServiceTest, CheckOfAnUnknownServiceIsNotFound) {
  HealthCheckResponse response;
  const grpc::Status status = Check("b.Service", &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "service: unknown; accepted: \"\", a.Service");
}

TEST_F(HealthServiceTest, WatchTellsTheStateAndItsChange) {
  const auto server = Watch("");
  const auto service = Watch("a.Service");
  EXPECT_EQ(server->Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(service->Next(), HealthCheckResponse::SERVING);
  health_.StopServing();
  EXPECT_EQ(server->Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(service->Next(), HealthCheckResponse::NOT_SERVING);
  health_.EndWatches();
  EXPECT_EQ(server->Next(), -1);
  EXPECT_EQ(server->reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service->Next(), -1);
}

TEST_F(HealthServiceTest, WatchOfAnUnknownServiceStaysOpen) {
  const auto watched = Watch("b.Service");
  EXPECT_EQ(watched->Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  health_.EndWatches();
  EXPECT_EQ(watched->Next(), -1);
}

TEST_F(HealthServiceTest, WatchAfterTheEndTellsTheStateAndEnds) {
  health_.StopServing();
  health_.EndWatches();
  const auto watched = Watch("");
  EXPECT_EQ(watched->Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(watched->Next(), -1);
}

TEST_F(HealthServiceTest, CancelledWatchesGoAway) {
  for (int i = 0; i < 20; ++i) {
    const auto watched = Watch("");
    if (i % 2 == 0) {
      EXPECT_EQ(watched->Next(), HealthCheckResponse::SERVING);
    }
    watched->context.TryCancel();
    (void)watched->reader->Finish();
  }
  health_.StopServing();  // walks what is left
  server_->Shutdown();    // would hang on a watch that never ends
}

}  // namespace
}  // namespace phasor::rpc
