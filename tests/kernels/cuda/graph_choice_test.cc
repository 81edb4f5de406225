// SPDX-License-Identifier: Apache-2.0
// Small trips use graphs exactly where the device is measured to be faster with them.
#include "kernels/cuda/graph_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/fake_driver.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;

// A device on which one call is slow.
std::shared_ptr<FakeDevice> DeviceWithSlow(const std::string& slow, absl::Duration time) {
  auto device = std::make_shared<FakeDevice>();
  device->FailWith([slow, time](const std::string& call, int64_t) {
    if (call == slow) absl::SleepFor(time);
    return absl::OkStatus();
  });
  return device;
}

TEST(GraphChoiceTest, IsWhatTookLess) {
  for (const std::string slow : {"Run", "CopyToHost", "RunGraph"}) {
    const auto device = DeviceWithSlow(slow, absl::Milliseconds(2));
    FakeDriver driver(device);
    EXPECT_EQ(AreGraphsSooner(driver), slow != "RunGraph") << slow;
    EXPECT_EQ(device->bytes(), 0) << "given back";
  }
}

TEST(GraphChoiceTest, ALittleLessIsNotWorthIt) {
  const auto device = DeviceWithSlow("Synchronize", absl::Milliseconds(10));  // in both
  FakeDriver driver(device);
  EXPECT_FALSE(AreGraphsSooner(driver));
}

TEST(GraphChoiceTest, ADeviceThatCannotBeMeasuredHasNone) {
  for (const std::string fails : {"CreateStream", "Allocate", "AllocatePinned", "CopyToDevice",
                                  "Run", "CopyToHost", "RunGraph", "Synchronize"}) {
    for (const auto code : {absl::StatusCode::kInternal, absl::StatusCode::kResourceExhausted,
                            absl::StatusCode::kUnavailable}) {
      const auto device = std::make_shared<FakeDevice>();
      device->FailWith([code, fails](const std::string& call, int64_t) {
        return call == fails ? absl::Status(code, "no") : absl::OkStatus();
      });
      FakeDriver driver(device);
      EXPECT_FALSE(AreGraphsSooner(driver)) << fails;
      EXPECT_EQ(device->bytes(), 0);
    }
  }
}

}  // namespace
}  // namespace phasor::cuda
