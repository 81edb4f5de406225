// SPDX-License-Identifier: Apache-2.0
// Which of several devices opens a handle, and what is said if none can.
#include "kernels/backend/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/said_device.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::kInvalid;
using ::phasor::testing::SaidDevice;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

// An allocation of some bytes.
class SaidAllocation final : public DeviceAllocation {
 public:
  explicit SaidAllocation(std::byte* data) : data_(data) {}
  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return 16; }
  bool usable() const override { return true; }
  absl::Status Read(int64_t, int64_t, std::byte*) const override { return absl::OkStatus(); }
  absl::Status Write(int64_t, int64_t, const std::byte*) const override { return absl::OkStatus(); }

 private:
  std::byte* const data_;
};

class DeviceListTest : public ::testing::Test {
 protected:
  DeviceListTest() { zero_.SetOpen(absl::InvalidArgumentError("another device's")); }

  std::byte memory_[64] = {};
  const std::shared_ptr<SaidAllocation> allocation_ =
      std::make_shared<SaidAllocation>(memory_ + 16);
  SaidDevice zero_{0}, two_{2};
  const DeviceList devices_{&zero_, &two_};
};

TEST_F(DeviceListTest, NamesTellDevicesApart) {
  EXPECT_EQ(NameOf(two_), "device 2 (said, GPU-2)");
  EXPECT_EQ(devices_.Uuids(), "GPU-0, GPU-2");
  EXPECT_EQ(devices_.WithUuid("GPU-2"), &two_);
  EXPECT_EQ(devices_.WithUuid("GPU-1"), nullptr);
  EXPECT_EQ(devices_.WithUuid(""), nullptr);
}

TEST_F(DeviceListTest, MemoryIsReadByTheDeviceThatHoldsItOrWhereItIs) {
  memory_[3] = std::byte{7};
  two_.SetHeld(memory_ + 16);
  std::byte read[2] = {};
  EXPECT_TRUE(devices_.Read(memory_ + 3, 2, read).ok());
  EXPECT_EQ(read[0], std::byte{7});
  EXPECT_TRUE(devices_.Read(memory_ + 16, 2, read).ok());
  EXPECT_EQ(read[1], std::byte{2}) << "device 2 answers with its number";
  EXPECT_TRUE(devices_.Read(nullptr, 0, nullptr).ok());
}

TEST_F(DeviceListTest, TheDeviceThatKnowsAHandleOpensIt) {
  two_.SetOpen(allocation_);
  const auto opened = devices_.Open({});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->device, &two_);
  EXPECT_EQ(opened->allocation, allocation_);
  EXPECT_TRUE(devices_.Open({}, &two_).ok());
  EXPECT_THAT(devices_.Open({}, &zero_), StatusIs(kInvalid, HasSubstr("another device's")));
}

TEST_F(DeviceListTest, AHandleThatNobodyKnowsIsWrongUnlessSomebodyCouldNotTell) {
  two_.SetOpen(absl::InvalidArgumentError("nor mine"));
  EXPECT_THAT(devices_.Open({}), StatusIs(kInvalid, HasSubstr("nor mine")));
  two_.SetOpen(absl::UnavailableError("lost"));
  EXPECT_THAT(devices_.Open({}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("lost")));
  zero_.SetOpen(absl::UnavailableError("lost first"));
  two_.SetOpen(absl::InvalidArgumentError("not mine"));
  EXPECT_THAT(devices_.Open({}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("lost first")));
  two_.SetOpen(allocation_);
  EXPECT_EQ(devices_.Open({})->device, &two_) << "a lost device does not keep others from it";
}

// Device 0 was lost while a call used its memory, and device 2 gets the same addresses.
TEST_F(DeviceListTest, AddressesNeverMeanTwoDevices) {
  two_.SetOpen(allocation_);
  for (const int held : {16, 31}) {
    zero_.SetHeld(memory_ + held);
    EXPECT_THAT(devices_.Open({}, &two_),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("try again")))
        << held;
  }
  for (const int held : {15, 32}) {
    zero_.SetHeld(memory_ + held);
    EXPECT_TRUE(devices_.Open({}, &two_).ok()) << held;
  }
  two_.SetHeld(memory_ + 16);  // its own
  EXPECT_TRUE(devices_.Open({}, &two_).ok());
}

}  // namespace
}  // namespace phasor
