// SPDX-License-Identifier: Apache-2.0
// Tests the messages of SharedMemoryService for regions of device memory.
#include "server/api/device_regions.h"

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
  absl::Status Register(absl::Duration ttl = absl::InfiniteDuration()) {
    return RegisterDeviceRegion(region_, me_, {.ttl = ttl}, store_);
  }

  testing::DeviceBackend backend_;
  engine::FakeClock clock_;
  std::shared_ptr<testing::FakeExport> memory_ = backend_.device().Export(4096);
  memory::DeviceRegionStore store_{
      backend_.cuda().devices(), {.enabled = true, .lease = absl::Minutes(10)}, &clock_};
  const memory::RegionCaller me_ = {"p", "me"};
  v1::Region region_;
};

TEST_F(DeviceRegionsTest, WhatIsRegisteredIsListedAsItIsKept) {
  region_.set_read_only(true);
  region_.set_ttl_ms(5000);
  ASSERT_THAT(Register(absl::Milliseconds(5000)), IsOk());
  const auto listed = store_.List(me_);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(RegionToWire(listed[0]).SerializeAsString(), region_.SerializeAsString());
  EXPECT_EQ(*(*store_.Find("kv", me_, "x"))->At(0, 1, false, "x"), memory_->device_view() + 24);
}

TEST_F(DeviceRegionsTest, NoneIsKeptLongerThanTheLease) {
  ASSERT_THAT(Register(), IsOk());
  EXPECT_EQ(RegionToWire(store_.List(me_)[0]).ttl_ms(), 600000);
}

TEST_F(DeviceRegionsTest, EveryFieldIsChecked) {
  const auto refused = [&](const std::string& message) {
    EXPECT_THAT(Register(), StatusIs(kInvalid, HasSubstr(message)));
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
  EXPECT_TRUE(store_.List(me_).empty());
}

TEST_F(DeviceRegionsTest, DirtyRegionsSaySo) {
  ASSERT_THAT(Register(), IsOk());
  backend_.Lose();
  EXPECT_TRUE(RegionToWire(store_.List(me_)[0]).dirty());
}

}  // namespace
}  // namespace phasor::rpc
