// SPDX-License-Identifier: Apache-2.0
// Tests limits on calls through a real gRPC server in this process. tests/e2e/open_calls_test.cc
// tests answers that nobody takes.
#include "server/grpc/open_calls.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/grpc/call_interceptor.h"
#include "server/grpc/health_service.h"
#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/running_server.h"
#include "tests/support/temp_dir.h"

namespace phasor::rpc {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

enum class Wire { kTcp, kUnix, kTls };

// Its SETTINGS allow what OpenCalls does not.
class OpenCallsTest : public ::testing::TestWithParam<Wire> {
 protected:
  OpenCallsTest() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.RegisterService(&health_);
    builder.AddListeningPort(address_, ServerCredentials(), &port);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(MakeCallInterceptors(&calls_, {}));
    builder.experimental().SetInterceptorCreators(std::move(creators));
    server_ = builder.BuildAndStart();
    if (GetParam() != Wire::kUnix) address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~OpenCallsTest() override {
    health_.EndWatches();
    server_->Shutdown();
  }

  std::shared_ptr<grpc::ServerCredentials> ServerCredentials() {
    if (GetParam() != Wire::kTls) return grpc::InsecureServerCredentials();
    const testing::CertificateAndKey issued = authority_.Issue("IP:127.0.0.1");
    grpc::SslServerCredentialsOptions options;
    options.pem_key_cert_pairs = {{issued.key, issued.certificate}};
    return grpc::SslServerCredentials(options);
  }

  // Over a connection of its own.
  std::unique_ptr<Health::Stub> Connect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto credentials = GetParam() == Wire::kTls
                                 ? grpc::SslCredentials({authority_.certificate(), "", ""})
                                 : grpc::InsecureChannelCredentials();
    return Health::NewStub(grpc::CreateCustomChannel(address_, credentials, arguments));
  }
  static grpc::Status Check(Health::Stub* stub, const std::string& metadata = "") {
    testing::TestContext context;
    if (!metadata.empty()) context.AddMetadata("x-text", metadata);
    HealthCheckResponse response;
    return stub->Check(&context, {}, &response);
  }

  const testing::TempDir directory_;
  testing::CertificateAuthority authority_{"ca"};
  OpenCalls calls_{{.calls_per_connection = 2, .metadata_bytes = 1000}, nullptr};
  HealthService health_{{}};
  std::string address_ =
      GetParam() == Wire::kUnix ? "unix:" + directory_.path() + "/socket" : "127.0.0.1:0";
  std::unique_ptr<grpc::Server> server_;
};

INSTANTIATE_TEST_SUITE_P(Wires, OpenCallsTest,
                         ::testing::Values(Wire::kTcp, Wire::kUnix, Wire::kTls));

TEST_P(OpenCallsTest, CallsBeyondThoseOfAConnectionAreUnavailable) {
  const auto stub = Connect();
  grpc::ClientContext contexts[2];
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> watches[2];
  HealthCheckResponse response;
  for (int i = 0; i < 2; ++i) {
    watches[i] = stub->Watch(&contexts[i], {});
    ASSERT_TRUE(watches[i]->Read(&response));
  }
  const grpc::Status third = Check(stub.get());
  EXPECT_EQ(third.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(third.error_message(), HasSubstr("more than 2 calls at a time"));
  EXPECT_TRUE(Check(Connect().get()).ok());  // over another connection

  contexts[0].TryCancel();
  EXPECT_FALSE(watches[0]->Read(&response));
  static_cast<void>(watches[0]->Finish());
  EXPECT_TRUE(testing::Eventually([&] { return Check(stub.get()).ok(); }));
  contexts[1].TryCancel();
  static_cast<void>(watches[1]->Finish());
}

TEST_P(OpenCallsTest, LargeMetadataIsRefused) {
  const auto stub = Connect();
  const grpc::Status status = Check(stub.get(), std::string(1000, 'x'));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("metadata: "));
  EXPECT_TRUE(Check(stub.get(), std::string(500, 'x')).ok());
}

}  // namespace
}  // namespace phasor::rpc
