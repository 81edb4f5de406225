// SPDX-License-Identifier: Apache-2.0
// Tests named regions over gRPC: answers, and calls that use regions.
// tests/e2e/named_regions_test.cc and lost_regions_test.cc test what clients may do to regions.
#include "server/api/shared_memory_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/device_backend.h"
#include "tests/support/shared_memory.h"

namespace phasor::rpc {
namespace {

using Code = grpc::StatusCode;
using ::testing::HasSubstr;

class SharedMemoryServiceTest : public ::testing::Test {
 protected:
  explicit SharedMemoryServiceTest(bool has_device = false)
      : devices_(has_device ? backend_.cuda().devices() : DeviceList(),
                 {.enabled = true, .lease = absl::Minutes(10)}, Clock::Real()) {}
  ~SharedMemoryServiceTest() override { server_->Shutdown(); }
  static memory::RegionStoreOptions Enabled() {
    memory::RegionStoreOptions options;
    options.enabled = true;
    return options;
  }
  std::unique_ptr<grpc::Server> Serve() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    return builder.BuildAndStart();
  }
  static v1::Region RegionOf(const std::string& name, const std::string& key, int64_t bytes) {
    v1::Region region;
    region.set_name(name);
    region.set_size_bytes(bytes);
    region.mutable_posix()->set_key(key);
    return region;
  }
  grpc::Status Register(const v1::Region& region, v1::Region* registered = nullptr) {
    grpc::ClientContext context;
    v1::RegisterRequest request;
    *request.mutable_region() = region;
    v1::RegisterResponse response;
    const grpc::Status status = stub_->Register(&context, request, &response);
    if (registered != nullptr) *registered = response.region();
    return status;
  }
  grpc::Status Unregister(const std::string& name) {
    grpc::ClientContext context;
    v1::UnregisterRequest request;
    request.set_name(name);
    v1::UnregisterResponse response;
    return stub_->Unregister(&context, request, &response);
  }
  v1::ListResponse List() {
    grpc::ClientContext context;
    v1::ListResponse response;
    EXPECT_TRUE(stub_->List(&context, {}, &response).ok());
    return response;
  }

  const testing::SharedMemory memory_{std::string(1000, 'm')};
  memory::RegionStore regions_{Enabled()};
  testing::DeviceBackend backend_;
  memory::DeviceRegionStore devices_;
  SharedMemoryServiceImpl service_{&regions_, &devices_};
  int port_ = 0;
  const std::unique_ptr<grpc::Server> server_ = Serve();
  const std::unique_ptr<v1::SharedMemoryService::Stub> stub_ =
      v1::SharedMemoryService::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                                                           grpc::InsecureChannelCredentials()));
};

TEST_F(SharedMemoryServiceTest, TheAnswerRepeatsNoUnknownFields) {
  v1::Region unknown = RegionOf("c", memory_.key(), 1);
  unknown.set_ttl_ms(1000);
  const std::string known = unknown.SerializeAsString();
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddVarint(1000, 1);
  v1::Region echo;
  ASSERT_TRUE(Register(unknown, &echo).ok());
  EXPECT_EQ(echo.SerializeAsString(), known);
}

TEST_F(SharedMemoryServiceTest, RegionsAreRegisteredListedAndForgotten) {
  v1::Region region = RegionOf("b", memory_.key(), 900);
  region.mutable_posix()->set_offset_bytes(100);
  region.set_read_only(true);
  region.set_ttl_ms(60000);
  v1::Region registered;
  ASSERT_TRUE(Register(region, &registered).ok());
  EXPECT_EQ(registered.SerializeAsString(), region.SerializeAsString());
  ASSERT_TRUE(Register(RegionOf("a", memory_.key(), 1), &registered).ok());
  EXPECT_EQ(registered.ttl_ms(), 3600000) << "the server's own";

  const v1::ListResponse list = List();
  ASSERT_EQ(list.regions_size(), 2);
  EXPECT_EQ(list.regions(0).SerializeAsString(), registered.SerializeAsString());
  EXPECT_EQ(list.regions(1).SerializeAsString(), region.SerializeAsString());

  EXPECT_TRUE(Unregister("b").ok());
  EXPECT_EQ(Unregister("b").error_code(), Code::NOT_FOUND);
  EXPECT_EQ(List().regions_size(), 1);
}

TEST_F(SharedMemoryServiceTest, WhoIsNotKnownToBeOnThisHostIsRefused) {
  const auto stub = v1::SharedMemoryService::NewStub(server_->InProcessChannel({}));
  grpc::ClientContext context;
  v1::RegisterRequest request;
  *request.mutable_region() = RegionOf("r", memory_.key(), 10);
  v1::RegisterResponse response;
  const grpc::Status status = stub->Register(&context, request, &response);
  EXPECT_EQ(status.error_code(), Code::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("another host"));
}

TEST_F(SharedMemoryServiceTest, WhatIsWrongIsSaid) {
  struct Case {
    std::function<void(v1::Region&)> spoil;
    Code code;
    std::string message;
  };
  const Case cases[] = {
      {[](v1::Region& r) { r.clear_backing(); }, Code::INVALID_ARGUMENT, "region.posix: not set"},
      {[](v1::Region& r) { r.mutable_cuda_ipc(); }, Code::INVALID_ARGUMENT,
       "region.cuda_ipc.handle: 0 bytes"},
      {[](v1::Region& r) {
         r.mutable_cuda_ipc()->set_handle(std::string(64, 'h'));
         r.mutable_cuda_ipc()->set_device_uuid("GPU-1");
       },
       Code::FAILED_PRECONDITION, "this server uses no device"},
      {[](v1::Region& r) { r.clear_name(); }, Code::INVALID_ARGUMENT, "region.name: 0 bytes"},
      {[](v1::Region& r) { r.set_name(std::string(256, 'n')); }, Code::INVALID_ARGUMENT,
       "region.name: 256 bytes; must be 1 to 255"},
      {[](v1::Region& r) { r.set_ttl_ms(-1); }, Code::INVALID_ARGUMENT, "region.ttl_ms: -1"},
      {[](v1::Region& r) { r.set_ttl_ms(3600001); }, Code::INVALID_ARGUMENT,
       "region.ttl_ms: 3600001; must be 1 to 3600000"},
      {[](v1::Region& r) { r.set_size_bytes(1001); }, Code::INVALID_ARGUMENT,
       "region.size_bytes: 1001 bytes from 0"},
      {[](v1::Region& r) { r.set_size_bytes(0); }, Code::INVALID_ARGUMENT,
       "region.size_bytes: 0 bytes from 0"},
      {[](v1::Region& r) { r.mutable_posix()->set_key("/a/b"); }, Code::INVALID_ARGUMENT,
       "region.posix.key: not a name"},
      {[](v1::Region& r) { r.mutable_posix()->set_key("/phasor_no_such"); }, Code::NOT_FOUND,
       "region.posix.key: '/phasor_no_such'"}};
  for (const Case& c : cases) {
    v1::Region region = RegionOf("r", memory_.key(), 10);
    c.spoil(region);
    const grpc::Status status = Register(region);
    EXPECT_EQ(status.error_code(), c.code) << c.message;
    EXPECT_THAT(status.error_message(), HasSubstr(c.message));
  }
  grpc::ClientContext context;
  v1::RegisterResponse response;
  EXPECT_EQ(stub_->Register(&context, {}, &response).error_code(), Code::INVALID_ARGUMENT);
}

class DeviceRegionsTest : public SharedMemoryServiceTest {
 protected:
  DeviceRegionsTest() : SharedMemoryServiceTest(/*has_device=*/true) {
    region_.set_name("kv");
    region_.set_size_bytes(1000);
    region_.mutable_cuda_ipc()->set_handle(device_memory_->handle_bytes());
    region_.mutable_cuda_ipc()->set_offset_bytes(24);
    region_.mutable_cuda_ipc()->set_device_uuid(backend_.cuda().device_uuid());
  }

  const std::shared_ptr<testing::FakeExport> device_memory_ = backend_.device().Export(4096);
  v1::Region region_;
};

TEST_F(DeviceRegionsTest, WhatIsRegisteredIsListedAsItIsKept) {
  region_.set_read_only(true);
  region_.set_ttl_ms(5000);
  ASSERT_TRUE(Register(region_).ok());
  const v1::ListResponse list = List();
  ASSERT_EQ(list.regions_size(), 1);
  EXPECT_EQ(list.regions(0).SerializeAsString(), region_.SerializeAsString());
}

TEST_F(DeviceRegionsTest, NoneIsKeptLongerThanTheLease) {
  ASSERT_TRUE(Register(region_).ok());
  EXPECT_EQ(List().regions(0).ttl_ms(), 600000);
}

TEST_F(DeviceRegionsTest, EveryFieldIsChecked) {
  const auto refused = [&](const std::string& message) {
    const grpc::Status status = Register(region_);
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  };
  const v1::Region good = region_;
  region_.set_name("");
  refused("name: 0 bytes");
  region_ = good;
  region_.mutable_cuda_ipc()->set_handle("short");
  refused("region.cuda_ipc.handle: 5 bytes; must be 64");
  region_.mutable_cuda_ipc()->set_handle(std::string(64, 'x'));
  refused("region.cuda_ipc.handle: ");
  region_ = good;
  region_.mutable_cuda_ipc()->set_offset_bytes(3097);
  refused(
      "region.size_bytes: 1000 bytes from 3097; must be within the 4096 bytes of the allocation");
  region_.mutable_cuda_ipc()->set_offset_bytes(INT64_MAX);
  refused("region.size_bytes: ");
  region_ = good;
  region_.mutable_cuda_ipc()->clear_device_uuid();
  refused("region.cuda_ipc.device_uuid: not set");
  region_.mutable_cuda_ipc()->set_device_uuid("GPU-1");
  refused("region.cuda_ipc.device_uuid: 'GPU-1'");
  EXPECT_EQ(List().regions_size(), 0);
}

TEST_F(DeviceRegionsTest, DirtyRegionsSaySo) {
  ASSERT_TRUE(Register(region_).ok());
  backend_.Lose();
  EXPECT_TRUE(List().regions(0).dirty());
}

}  // namespace
}  // namespace phasor::rpc
