// SPDX-License-Identifier: Apache-2.0
// SharedMemoryService on device memory: its messages.
#include "server/rpc/device_regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/device_backend.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

class DeviceRegionsTest : public ::testing::Test {
 protected:
  DeviceRegionsTest() {
    region_.set_name("kv");
    region_.set_size_bytes(1000);
    region_.mutable_cuda_ipc()->set_handle(memory_->handle_bytes());
    region_.mutable_cuda_ipc()->set_offset_bytes(24);
    region_.mutable_cuda_ipc()->set_device_uuid(backend_.cuda().device_uuid());
  }
  absl::StatusOr<v1::Region> Register() {
    return RegisterDeviceRegion(region_, {"p", "me"}, store_);
  }

  testing::DeviceBackend backend_;
  engine::FakeClock clock_;
  std::shared_ptr<testing::FakeExport> memory_ = backend_.device().Export(4096);
  regions::DeviceRegionStore store_{
      &backend_.cuda(), {.enabled = true, .lease = absl::Minutes(10)}, &clock_};
  v1::Region region_;
};

TEST_F(DeviceRegionsTest, WhatIsRegisteredIsListedAsItIsKept) {
  region_.set_read_only(true);
  region_.set_ttl_ms(5000);
  const auto registered = Register();
  ASSERT_THAT(registered, IsOk());
  EXPECT_EQ(registered->SerializeAsString(), region_.SerializeAsString());
  const auto listed = store_.List("me");
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(ToWire(listed[0]).SerializeAsString(), region_.SerializeAsString());
  EXPECT_EQ(*(*store_.Find("kv", "me", "x"))->At(0, 1, false, "x"), memory_->device_view() + 24);
}

TEST_F(DeviceRegionsTest, WithoutATimeItHasTheLongest) {
  const auto registered = Register();
  ASSERT_THAT(registered, IsOk());
  EXPECT_EQ(registered->ttl_ms(), 600000);
}

TEST_F(DeviceRegionsTest, EveryFieldIsChecked) {
  const auto refused = [&](const std::string& message) {
    EXPECT_THAT(Register(), StatusIs(kInvalid, HasSubstr(message)));
  };
  const v1::Region good = region_;
  region_.set_name("");
  refused("name: not set");
  region_ = good;
  region_.mutable_cuda_ipc()->set_handle("short");
  refused("region.cuda_ipc.handle: 5 bytes, must be 64");
  region_.mutable_cuda_ipc()->set_handle(std::string(64, 'x'));
  refused("region.cuda_ipc.handle: ");
  region_ = good;
  region_.mutable_cuda_ipc()->set_offset_bytes(3097);
  refused("region.size_bytes: 1000 bytes from 3097, must be within the allocation's 4096");
  region_.mutable_cuda_ipc()->set_offset_bytes(INT64_MAX);
  refused("region.size_bytes: ");
  region_ = good;
  region_.mutable_cuda_ipc()->clear_device_uuid();
  refused("region.cuda_ipc.device_uuid: not set");
  region_.mutable_cuda_ipc()->set_device_uuid("GPU-1");
  refused("region.cuda_ipc.device_uuid: 'GPU-1'");
  for (const int64_t ttl : {int64_t{-1}, int64_t{600001}}) {
    region_ = good;
    region_.set_ttl_ms(ttl);
    refused("region.ttl_ms: ");
  }
  EXPECT_TRUE(store_.List("me").empty());
}

TEST_F(DeviceRegionsTest, DirtyRegionsSaySo) {
  ASSERT_THAT(Register(), IsOk());
  backend_.Lose();
  EXPECT_TRUE(ToWire(store_.List("me")[0]).dirty());
}

TEST_F(DeviceRegionsTest, CallsNameNothingWhereNothingIsRegistered) {
  regions::DeviceRegionStore off(nullptr, {.enabled = true}, &clock_);
  const grpc::CallbackServerContext context;
  EXPECT_EQ(DevicesOf(nullptr, context).store, nullptr);
  EXPECT_EQ(DevicesOf(&off, context).store, nullptr);
}

}  // namespace
}  // namespace phasor::rpc
