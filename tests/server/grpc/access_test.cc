// SPDX-License-Identifier: Apache-2.0
// Tests the gate in front of a service that answers every call that is let through.
#include "server/grpc/access.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/sha256.h"
#include "kernels/base/text.h"
#include "server/api/shared_memory_service.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/call_interceptor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::rpc {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using testing::StatusIs;

const std::vector<std::string>& Services() {
  static const auto* const services =
      new std::vector<std::string>{v1::SharedMemoryService::service_full_name()};
  return *services;
}

class AccessTest : public ::testing::Test {
 protected:
  AccessTest() {
    dir_.Write("tokens", StrCat("ci sha256:", Sha256Hex(token_), "\n"));
    dir_.Write("policy", R"({"identities": [{"identity": "token:ci",
      "methods": ["phasor.v1.SharedMemoryService/List"], "max_inflight_bytes": 100}]})");
  }
  ~AccessTest() override {
    if (server_ != nullptr) server_->Shutdown();
  }
  absl::StatusOr<std::unique_ptr<Access>> Load() {
    return Access::Load({dir_.path() + "/tokens", dir_.path() + "/policy"}, Services());
  }
  void Start() {
    auto access = Load();
    ASSERT_THAT(access, IsOk());
    access_ = *std::move(access);
    grpc::ServerBuilder builder;
    auto calls = std::make_unique<CallCounter>(access_.get());
    calls_ = calls.get();
    builder.SetContextAllocator(std::move(calls));
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(MakeCallInterceptors(&open_calls_, {}));
    builder.experimental().SetInterceptorCreators(std::move(creators));
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::SharedMemoryService::NewStub(server_->InProcessChannel({}));
  }
  grpc::Status List(const std::string& token) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    v1::ListResponse response;
    return stub_->List(&context, {}, &response);
  }
  grpc::Status Unregister(const std::string& token) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    v1::UnregisterResponse response;
    return stub_->Unregister(&context, {}, &response);
  }

  const std::string token_ = std::string(40, 't');
  const testing::TempDir dir_;
  std::unique_ptr<Access> access_;
  memory::RegionStore regions_{memory::RegionStoreOptions()};
  memory::DeviceRegionStore devices_{DeviceList(), {}, Clock::Real()};
  SharedMemoryServiceImpl service_{&regions_, &devices_};
  OpenCalls open_calls_{{.calls_per_connection = 1, .metadata_bytes = 8192}, nullptr};
  CallCounter* calls_ = nullptr;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::SharedMemoryService::Stub> stub_;
};

TEST_F(AccessTest, RefusesAndCountsAndDoesNotRepeatTheToken) {
  Start();
  EXPECT_EQ(List(token_).error_code(), grpc::StatusCode::OK);
  EXPECT_EQ(access_->stats().unauthenticated, 0);
  EXPECT_EQ(List("").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const std::string other(40, 'o');
  const grpc::Status unknown = List(other);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(unknown.error_message(), Not(HasSubstr(other)));
  const grpc::Status denied = Unregister(token_);
  EXPECT_EQ(denied.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(denied.error_message(), Not(HasSubstr(token_)));
  EXPECT_EQ(access_->stats().unauthenticated, 2);
  EXPECT_EQ(access_->stats().permission_denied, 1);
}

TEST_F(AccessTest, ReloadTakesNewTokensAndKeepsTheOldOnesOfABadFile) {
  Start();
  EXPECT_FALSE(access_->Changed());
  const std::string next(40, 'n');
  dir_.Write("tokens", "nonsense that is longer than what was there, so that it shows in the size");
  EXPECT_TRUE(access_->Changed());
  EXPECT_THAT(access_->Reload(), StatusIs(testing::kInvalid, HasSubstr("tokens-file: ")));
  EXPECT_FALSE(access_->Changed());
  EXPECT_EQ(List(token_).error_code(), grpc::StatusCode::OK);
  dir_.Write("tokens", StrCat("ci sha256:", Sha256Hex(next), "\n"));
  EXPECT_THAT(access_->Reload(), IsOk());
  EXPECT_EQ(List(next).error_code(), grpc::StatusCode::OK);
  EXPECT_EQ(List(token_).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(AccessTest, WhoComesTooLateIsToldSoWhoeverItIs) {
  Start();
  calls_->StartDraining();
  EXPECT_EQ(List(token_).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(List("").error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(AccessTest, ACallerThatNobodyAskedAboutHasNoNameAndNoBounds) {
  auto access = Load();
  ASSERT_THAT(access, IsOk());
  CallCounter calls(access->get());
  grpc::CallbackServerContext* const context = calls.NewCallbackServerContext();
  EXPECT_EQ(RegionCallerOf(*context).identity, "");
  EXPECT_EQ(RegionCallerOf(*context).max_regions, security::kUnlimited);
  EXPECT_THAT(CallerQuota(*context).Take(1 << 30), IsOk());
  calls.Release(context);
}

}  // namespace
}  // namespace phasor::rpc
