// SPDX-License-Identifier: Apache-2.0
// Compares a scrape with a counted workload, and tests the side listeners.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/fake_driver.h"
#include "tests/support/http_get.h"
#include "tests/support/is_serving.h"
#include "tests/support/listening_socket.h"
#include "tests/support/reflection_call.h"
#include "tests/support/requests.h"
#include "tests/support/run_shell.h"
#include "tests/support/running_server.h"
#include "tests/support/server_process.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;
using testing::IsServing;
using testing::NewChannel;
using ::testing::Not;
using testing::StartServer;
using ::testing::StartsWith;
using testing::TestContext;
using testing::TestOptions;
using v1::PositionEmbeddingService;

constexpr char kEncode[] = "phasor.v1.PositionEmbeddingService/Encode";

std::string Scrape(const std::string& address) { return testing::HttpGet(address, "/metrics"); }

// The value on the line that begins with `series` and a space; -1 if there is none.
double ValueOf(const std::string& page, const std::string& series) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(series + " ", 0) == 0) return std::stod(line.substr(series.size() + 1));
  }
  return -1;
}

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    options_.metrics_listen = {"127.0.0.1:0"};
    options_.admin_listen = {"127.0.0.1:0"};
  }

  void Start() {
    server_ = StartServer(options_);
    ASSERT_NE(server_, nullptr);
    channel_ = NewChannel(server_->listeners()[0]);
  }

  grpc::Status Encode(const v1::EncodeRequest& request) {
    TestContext context;
    v1::EncodeResponse response;
    const grpc::Status status =
        PositionEmbeddingService::NewStub(channel_)->Encode(&context, request, &response);
    sent_bytes_ += static_cast<int64_t>(request.ByteSizeLong());
    received_bytes_ += static_cast<int64_t>(response.ByteSizeLong());
    return status;
  }

  std::string Page() const { return Scrape(server_->metrics_listeners()[0]); }

  ServerOptions options_ = TestOptions();
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  int64_t sent_bytes_ = 0;
  int64_t received_bytes_ = 0;
};

TEST_F(MetricsTest, CountsAreExactOnceTheLastAnswerIsThere) {
  options_.max_message_bytes = 64 << 10;
  Start();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(Encode(testing::EncodeRequestOf(1 + i % 3)).ok());
  const int64_t sent_ok = sent_bytes_, received_ok = received_bytes_;
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(Encode(v1::EncodeRequest()).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Encode(testing::EncodeRequestOf(1 << 20)).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("200 OK"));
  const auto series = [](const std::string& name, const std::string& code) {
    return name + "{grpc_method=\"" + kEncode + "\",grpc_status=\"" + code + "\"}";
  };
  const std::string duration = "grpc_server_call_duration_seconds_count";
  EXPECT_EQ(ValueOf(page, series(duration, "OK")), 40);
  EXPECT_EQ(ValueOf(page, series(duration, "INVALID_ARGUMENT")), 7);
  EXPECT_EQ(ValueOf(page, series(duration, "RESOURCE_EXHAUSTED")), 3);
  EXPECT_EQ(
      ValueOf(page, std::string("grpc_server_call_started_total{grpc_method=\"") + kEncode + "\"}"),
      50);
  EXPECT_EQ(
      ValueOf(page, series("grpc_server_call_rcvd_total_compressed_message_size_bytes_sum", "OK")),
      static_cast<double>(sent_ok));
  EXPECT_EQ(
      ValueOf(page, series("grpc_server_call_sent_total_compressed_message_size_bytes_sum", "OK")),
      static_cast<double>(received_ok));
  EXPECT_EQ(ValueOf(page, "phasor_calls_total{path=\"inline\"}"), 40);
  EXPECT_EQ(ValueOf(page, "phasor_compute_seconds_count"), 40);
  EXPECT_EQ(ValueOf(page, "phasor_batch_calls_sum"), 40);
  EXPECT_EQ(ValueOf(page, "phasor_plan_cache_misses_total"), 1);
  EXPECT_EQ(ValueOf(page, "phasor_plan_cache_hits_total"), 42);  // refused for size: after the plan
  EXPECT_EQ(ValueOf(page, "phasor_connections"), 1);
  EXPECT_EQ(ValueOf(page, "phasor_serving"), 1);
}

TEST_F(MetricsTest, CallsOfMethodsThatThereAreNotShareOneSeries) {
  Start();
  constexpr int kPaths = 1000;
  for (int i = 0; i < kPaths; ++i) {
    const std::string path = "/" + std::string(200, 'x') + "/" + std::to_string(i);
    TestContext context;
    v1::EncodeResponse response;
    const grpc::internal::RpcMethod method(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    EXPECT_EQ(grpc::internal::BlockingUnaryCall(channel_.get(), method, &context,
                                                v1::EncodeRequest(), &response)
                  .error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  const std::string page = Page();
  EXPECT_EQ(ValueOf(page, R"(grpc_server_call_started_total{grpc_method="other"})"), kPaths);
  EXPECT_EQ(ValueOf(page, R"(grpc_server_call_duration_seconds_count{grpc_method="other",)"
                          R"(grpc_status="UNIMPLEMENTED"})"),
            kPaths);
  EXPECT_THAT(page, Not(HasSubstr("xxxx")));
}

TEST_F(MetricsTest, CallsOfGrpcsOwnServicesHaveTheirNames) {
  Start();
  EXPECT_TRUE(IsServing(channel_));
  EXPECT_TRUE(testing::ReflectionCall(channel_).Status().ok());
  const std::string page = Page();
  const std::string started = "grpc_server_call_started_total{grpc_method=\"";
  EXPECT_EQ(ValueOf(page, started + "grpc.health.v1.Health/Check\"}"), 1);
  EXPECT_EQ(
      ValueOf(page, started + "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo\"}"),
      1);
}

TEST_F(MetricsTest, QueuedCallsAreTimed) {
  options_.inline_bytes = 0;
  Start();
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(Encode(testing::EncodeRequestOf(1)).ok());
  const std::string page = Page();
  EXPECT_EQ(ValueOf(page, "phasor_queue_seconds_count"), 9);
  EXPECT_GT(ValueOf(page, "phasor_queue_seconds_sum"), 0);
  EXPECT_EQ(ValueOf(page, "phasor_calls_total{path=\"queued\"}"), 9);
}

TEST_F(MetricsTest, ADeviceAndWhatItIsNotGivenAreCounted) {
  auto device = std::make_shared<testing::FakeDevice>();
  cuda::CudaBackendOptions cuda;
  cuda.least_bytes = 64 << 10;
  server_ = StartServer(options_, std::make_unique<cuda::CudaBackend>(
                                      std::make_unique<testing::FakeDriver>(device),
                                      cpu::MakeCpuBackend({cpu::Target::kScalar, 1}), cuda));
  ASSERT_NE(server_, nullptr);
  channel_ = NewChannel(server_->listeners()[0]);
  const v1::EncodeRequest small = testing::EncodeRequestOf(1);
  const v1::EncodeRequest large = testing::EncodeRequestOf(64 << 10);
  const auto expect = [this](int on_device, int not_for_it, int failed, int usable) {
    const std::string page = Page();
    const std::string computed = "phasor_items_computed_total{backend=\"";
    const std::string fallbacks = "phasor_device_fallbacks_total{device=\"0\",reason=\"";
    EXPECT_EQ(ValueOf(page, computed + "cuda\"}"), on_device);
    EXPECT_EQ(ValueOf(page, "phasor_device_items_total{device=\"0\"}"), on_device);
    EXPECT_EQ(ValueOf(page, computed + "cpu\"}"), not_for_it + failed);
    EXPECT_EQ(ValueOf(page, fallbacks + "not_for_device\"}"), not_for_it);
    EXPECT_EQ(ValueOf(page, fallbacks + "device_failed\"}"), failed);
    EXPECT_EQ(ValueOf(page, "phasor_device_usable{device=\"0\"}"), usable);
    EXPECT_EQ(ValueOf(page, "phasor_batch_items_sum"), on_device + not_for_it + failed);
    // Each that the device was given, one after another.
    EXPECT_EQ(ValueOf(page, "phasor_batches_total{closed=\"queue_empty\"}"), on_device + failed);
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Encode(large).ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Encode(small).ok());
  expect(3, 5, 0, 1);
  device->FailWith([](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::UnavailableError("fell off the bus") : absl::OkStatus();
  });
  ASSERT_TRUE(Encode(large).ok());
  expect(3, 5, 1, 0);
  ASSERT_TRUE(Encode(large).ok());
  expect(3, 6, 1, 0);
}

TEST_F(MetricsTest, AServerWithoutADeviceCountsNone) {
  Start();
  ASSERT_TRUE(Encode(testing::EncodeRequestOf(1)).ok());
  const std::string page = Page();
  EXPECT_EQ(ValueOf(page, "phasor_items_computed_total{backend=\"cpu\"}"), 1);
  EXPECT_THAT(page, Not(HasSubstr("phasor_device_")));
}

TEST_F(MetricsTest, AStreamThatItsCallerLeavesIsCountedOnce) {
  Start();
  {
    TestContext context;
    const auto stream = PositionEmbeddingService::NewStub(channel_)->StreamEncode(&context);
    v1::StreamEncodeRequest request;
    request.set_id(1);
    *request.mutable_item() = testing::EncodeRequestOf(1).item();
    ASSERT_TRUE(stream->Write(request));
    v1::StreamEncodeResponse response;
    ASSERT_TRUE(stream->Read(&response));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // gRPC may tell of the end of the stream before it tells why: then the server ends it as OK.
  const std::string series =
      "grpc_server_call_duration_seconds_count{grpc_method="
      "\"phasor.v1.PositionEmbeddingService/StreamEncode\",grpc_status=\"";
  double counted = 0;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);  // the server hears of it later
  while (counted == 0 && absl::Now() < deadline) {
    const std::string page = Page();
    for (const char* code : {"OK", "CANCELLED"}) {
      counted += std::max(ValueOf(page, series + code + "\"}"), 0.0);
    }
  }
  EXPECT_EQ(counted, 1);
}

// As the server finds the library of a driver. No hardware has confirmed these numbers.
TEST(GpuMetricsTest, WhatTheDriverTellsIsOnThePageAndNothingWithoutADriver) {
  const auto page_of_new_server = [] {
    const testing::ServerProcess server({"--metrics-listen=127.0.0.1:0"});
    return Scrape(server.metrics_address());
  };
  ASSERT_EQ(setenv("LD_LIBRARY_PATH", FAKE_NVML_DIRECTORY, 1), 0);
  const std::string page = page_of_new_server();
  setenv("FAKE_NVML", "no driver", 1);
  const std::string without = page_of_new_server();
  unsetenv("FAKE_NVML");
  unsetenv("LD_LIBRARY_PATH");
  const std::string first = "{gpu_uuid=\"GPU-00000000-0000-0000-0000-000000000001\"}";
  EXPECT_EQ(ValueOf(page, "nv_gpu_utilization" + first), 0.25);
  EXPECT_EQ(ValueOf(page, "nv_gpu_power_usage" + first), 123.456);
  EXPECT_EQ(ValueOf(page, "nv_gpu_power_limit" + first), 700);
  EXPECT_EQ(ValueOf(page, "nv_gpu_memory_total_bytes" + first), 150.0 * (1 << 30));
  EXPECT_EQ(ValueOf(page, "nv_gpu_memory_used_bytes" + first), 1 << 30);
  EXPECT_EQ(ValueOf(without, "phasor_serving"), 1);
  EXPECT_THAT(without, Not(HasSubstr("nv_gpu_")));
}

TEST_F(MetricsTest, OtherPathsAreNotFound) {
  Start();
  EXPECT_THAT(testing::HttpGet(server_->metrics_listeners()[0], "/../etc/passwd"),
              HasSubstr(" 404 "));
}

TEST_F(MetricsTest, ScrapesGoOnBesideConnectionsThatSayNothing) {
  Start();
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(ConnectTo(server_->metrics_listeners()[0]));
  const absl::Time begun = absl::Now();
  EXPECT_THAT(Page(), HasSubstr("phasor_serving 1"));
  EXPECT_LT(absl::Now() - begun, absl::Minutes(1)) << "one after another, they have 25 minutes";
}

TEST_F(MetricsTest, TheListenersOfMetricsAndHealthDoNotDelayTheEnd) {
  Start();
  EXPECT_THAT(Page(), HasSubstr("phasor_serving 1"));
  const FileDescriptor silent = ConnectTo(server_->metrics_listeners()[0]);
  const absl::Time begun = absl::Now();
  server_.reset();
  EXPECT_LT(absl::Now() - begun, absl::Minutes(1));
}

TEST_F(MetricsTest, AScrapeThatIsUnderWayAtTheEndReadsNothingThatIsGone) {
  for (int round = 0; round < 10; ++round) {
    Start();
    std::atomic<bool> ended = false;
    std::vector<std::thread> scrapers;
    for (int i = 0; i < 3; ++i) {
      scrapers.emplace_back([&ended, address = server_->metrics_listeners()[0]] {
        while (!ended) Scrape(address);
      });
    }
    EXPECT_THAT(Page(), HasSubstr("phasor_serving 1"));
    server_.reset();
    ended = true;
    for (std::thread& scraper : scrapers) scraper.join();
  }
}

TEST_F(MetricsTest, AnAddressInUseIsToldAtStart) {
  Start();
  ServerOptions options = TestOptions();
  options.metrics_listen = server_->metrics_listeners();
  const auto second = Server::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("metrics-listen: cannot listen on 127.0.0.1:"));

  options.metrics_listen.clear();
  options.admin_listen = server_->admin_listeners();
  const auto third = Server::Start(options);
  EXPECT_EQ(third.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(third.status().message()),
              StartsWith("admin-listen: cannot listen on 127.0.0.1:"));
}

TEST_F(MetricsTest, TheAdminListenerTellsHealthAndNothingElse) {
  Start();
  const auto admin = NewChannel(server_->admin_listeners()[0]);
  EXPECT_TRUE(IsServing(admin));
  TestContext encode;
  v1::EncodeResponse encoded;
  EXPECT_EQ(PositionEmbeddingService::NewStub(admin)
                ->Encode(&encode, testing::EncodeRequestOf(1), &encoded)
                .error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(MetricsTest, HealthEverywhereTellsOfAMainListenerThatTakesNoConnections) {
  Start();
  const std::string ask =
      std::string(PHASOR_BINARY) + " health --server " + server_->admin_listeners()[0];
  const auto admin = NewChannel(server_->admin_listeners()[0]);
  EXPECT_TRUE(IsServing(channel_));  // and stays connected
  EXPECT_TRUE(IsServing(admin));
  EXPECT_EQ(testing::RunShell(ask).status, 0);
  TestContext watching;
  const auto watch = Health::NewStub(admin)->Watch(&watching, HealthCheckRequest());
  HealthCheckResponse seen;
  ASSERT_TRUE(watch->Read(&seen));

  ASSERT_TRUE(testing::BreakListener(server_->listeners()[0]));
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(IsServing(admin));
  EXPECT_FALSE(IsServing(channel_));
  EXPECT_EQ(ValueOf(Page(), "phasor_serving"), 0);
  const testing::ShellOutcome outcome = testing::RunShell(ask);
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.text, HasSubstr("NOT_SERVING"));
}

}  // namespace
}  // namespace phasor
