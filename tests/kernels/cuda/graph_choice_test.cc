// SPDX-License-Identifier: Apache-2.0
// When small trips go as graphs: where the device is seen to be sooner with them.
#include "kernels/cuda/graph_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/fake_driver.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;

// A device one of whose calls takes long.
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
    const auto sooner = AreGraphsSooner(driver);
    ASSERT_TRUE(sooner.ok()) << sooner.status();
    EXPECT_EQ(*sooner, slow != "RunGraph") << slow;
    EXPECT_EQ(device->bytes(), 0) << "given back";
  }
}

TEST(GraphChoiceTest, ALittleLessIsNotWorthIt) {
  const auto device = DeviceWithSlow("Synchronize", absl::Milliseconds(10));  // in both ways
  FakeDriver driver(device);
  const auto sooner = AreGraphsSooner(driver);
  ASSERT_TRUE(sooner.ok()) << sooner.status();
  EXPECT_FALSE(*sooner);
}

TEST(GraphChoiceTest, ADeviceThatRefusesGraphsHasNone) {
  for (const auto code : {absl::StatusCode::kInternal, absl::StatusCode::kResourceExhausted,
                          absl::StatusCode::kUnavailable}) {
    const auto device = std::make_shared<FakeDevice>();
    device->FailWith([code](const std::string& call, int64_t) {
      return call == "RunGraph" ? absl::Status(code, "no") : absl::OkStatus();
    });
    FakeDriver driver(device);
    const auto sooner = AreGraphsSooner(driver);
    if (code == absl::StatusCode::kUnavailable) {
      EXPECT_EQ(sooner.status().code(), code) << "the device is lost";
    } else {
      ASSERT_TRUE(sooner.ok()) << sooner.status();
      EXPECT_FALSE(*sooner);
    }
    EXPECT_EQ(device->bytes(), 0);
  }
}

}  // namespace
}  // namespace phasor::cuda
