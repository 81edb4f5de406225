// SPDX-License-Identifier: Apache-2.0
// Tests handles, ranges and permissions of GPU regions, and lost GPUs.
#include "server/memory/device_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/device_backend.h"
#include "tests/support/device_backends.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::DeviceBackend;
using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

class DeviceRegionTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<DeviceRegion>> Open(DevicePlace place) {
    return DeviceRegion::Open(std::move(place), {&backend_.cuda()}, {});
  }
  DevicePlace PlaceAt(int64_t offset, int64_t bytes) {
    return {.handle = memory_->handle(), .offset = offset, .bytes = bytes};
  }

  DeviceBackend backend_;
  std::shared_ptr<testing::FakeExport> memory_ = backend_.device().Export(8192);
};

TEST_F(DeviceRegionTest, AHandleIsExactly64Bytes) {
  EXPECT_THAT(IpcHandleFrom(std::string(64, 'h'), "raw_handle"), IsOk());
  for (const size_t bytes : {0, 63, 65, 1000}) {
    EXPECT_THAT(IpcHandleFrom(std::string(bytes, 'h'), "raw_handle"),
                StatusIs(kInvalid, HasSubstr("raw_handle: ")))
        << bytes;
  }
}

TEST_F(DeviceRegionTest, IsInsideTheAllocationAsTheDriverKnowsIt) {
  EXPECT_THAT(Open(PlaceAt(0, 8192)), IsOk());
  EXPECT_THAT(Open(PlaceAt(8191, 1)), IsOk());
  for (const auto& [offset, bytes] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 8193},
                                                {8192, 1},
                                                {1, 8192},
                                                {-1, 10},
                                                {0, 0},
                                                {0, -1},
                                                {INT64_MAX, 1},
                                                {1, INT64_MAX},
                                                {INT64_MAX, INT64_MAX},
                                                {INT64_MIN, 1}}) {
    EXPECT_THAT(Open(PlaceAt(offset, bytes)), StatusIs(kInvalid, HasSubstr("byte_size: ")))
        << offset << " " << bytes;
  }
  EXPECT_EQ(backend_.device().open_mappings(), 0) << "what is refused is closed";
}

TEST_F(DeviceRegionTest, TheDeviceIsTheOneThatIsMeant) {
  DevicePlace place = PlaceAt(0, 8192);
  place.device_uuid = backend_.cuda().device_uuid();
  EXPECT_THAT(Open(place), IsOk());
  place.device_uuid = "GPU-00000000-0000-0000-0000-000000000000";
  EXPECT_THAT(Open(place), StatusIs(kInvalid, HasSubstr("must be that of the server's device")));
  EXPECT_THAT(Open({.handle = {}, .bytes = 1}), StatusIs(kInvalid, HasSubstr("handle: ")));
}

TEST_F(DeviceRegionTest, IsOnTheDeviceThatKnowsItsHandle) {
  testing::DeviceBackends gpus(3, DeviceBackend::Options());
  const DeviceList devices = gpus.backend().devices();
  const auto memory = gpus.device(2).Export(4096);
  DevicePlace place{.handle = memory->handle(), .bytes = 4096};
  auto region = DeviceRegion::Open(place, devices, {});
  ASSERT_THAT(region, IsOk());
  EXPECT_EQ(&(*region)->device(), &gpus.cuda(2));
  place.device_uuid = gpus.cuda(2).device_uuid();
  EXPECT_THAT(DeviceRegion::Open(place, devices, {}), IsOk());
  place.device_uuid = gpus.cuda(1).device_uuid();
  EXPECT_THAT(DeviceRegion::Open(place, devices, {}), StatusIs(kInvalid, HasSubstr("handle: ")));
  place.device_uuid = "GPU-0";
  EXPECT_THAT(DeviceRegion::Open(place, devices, {}),
              StatusIs(kInvalid, HasSubstr("device_uuid: 'GPU-0'; must be that of one of the "
                                           "server's devices, GPU-00010203-")));
  gpus.Lose(1);
  EXPECT_FALSE((*region)->lost()) << "another device was";
  EXPECT_THAT(DeviceRegion::Open({.handle = memory->handle(), .bytes = 4096}, devices, {}), IsOk());
}

TEST_F(DeviceRegionTest, GivesAddressesInsideItselfOnly) {
  const auto region = *Open(PlaceAt(100, 1000));
  EXPECT_EQ(*region->At(0, 1000, true, "in"), memory_->device_view() + 100);
  EXPECT_EQ(*region->At(999, 1, false, "in"), memory_->device_view() + 1099);
  for (const auto& [offset, bytes] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1001}, {1000, 1}, {-1, 1}, {0, -1}, {INT64_MAX, 2}, {2, INT64_MAX}}) {
    EXPECT_THAT(region->At(offset, bytes, false, "in"),
                StatusIs(kInvalid, HasSubstr("within the 1000 bytes of the region")));
  }
}

TEST_F(DeviceRegionTest, ReadOnlyMemoryIsForInputs) {
  DevicePlace place = PlaceAt(0, 1000);
  place.read_only = true;
  const auto region = *Open(place);
  EXPECT_THAT(region->At(0, 10, false, "in"), IsOk());
  EXPECT_THAT(region->At(0, 10, true, "out"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("out: ")));
}

TEST_F(DeviceRegionTest, DirtyMemoryIsNotUsed) {
  const auto region = *Open(PlaceAt(0, 1000));
  EXPECT_FALSE(region->dirty());
  region->dirty_flag()->store(true);
  EXPECT_TRUE(region->dirty());
  EXPECT_FALSE(region->lost());
  EXPECT_THAT(region->At(0, 10, false, "in"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("registered again")));
}

TEST_F(DeviceRegionTest, MemoryOfALostDeviceIsDirty) {
  const auto region = *Open(PlaceAt(0, 1000));
  backend_.Lose();
  EXPECT_TRUE(region->dirty());
  EXPECT_TRUE(region->lost());
  EXPECT_THAT(region->At(0, 10, false, "in"),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
}

TEST_F(DeviceRegionTest, CopiesItsOwnBytes) {
  const auto region = *Open(PlaceAt(100, 1000));
  const std::byte written[] = {std::byte{1}, std::byte{2}};
  ASSERT_THAT(region->Write(998, 2, written), IsOk());
  EXPECT_EQ(memory_->data()[1098], std::byte{1});
  EXPECT_EQ(memory_->data()[1099], std::byte{2});
  std::byte read[1] = {};
  ASSERT_THAT(region->Read(999, 1, read), IsOk());
  EXPECT_EQ(read[0], std::byte{2});
}

}  // namespace
}  // namespace phasor::memory
