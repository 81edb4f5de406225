// SPDX-License-Identifier: Apache-2.0
// Tests reports, retries and restarts when a GPU is lost.
#include "server/engine/device_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "server/base/log.h"
#include "tests/support/eventually.h"
#include "tests/support/said_device.h"

namespace phasor {
namespace {

using ::phasor::testing::SaidDevice;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = DeviceState::Kind;

class DeviceWatchTest : public ::testing::Test {
 protected:
  DeviceWatchTest() { SetLogLevel(LogLevel::kOff); }
  ~DeviceWatchTest() override { SetLogLevel(LogLevel::kInfo); }

  DeviceWatchOptions Options(bool restart, absl::Duration period = absl::Hours(1)) {
    return {.restart = restart,
            .changed =
                [this](const DevicePort& device) {
                  const bool works = device.device_state().kind == Kind::kWorking;
                  const int number = device.device_number();
                  Note((works ? "works" : "lost") + (number == 0 ? "" : std::to_string(number)));
                },
            .stop_serving = [this] { Note("stop"); },
            .period = period};
  }
  std::function<void()> Restart() {
    return [this] { Note("restart"); };
  }
  std::vector<std::string> told() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return told_;
  }

  SaidDevice device_;

 private:
  void Note(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_.push_back(what);
  }

  std::mutex mutex_;
  std::vector<std::string> told_;
};

TEST_F(DeviceWatchTest, TellsWhatChanges) {
  DeviceWatch watch({&device_}, Options(false));
  watch.WhenRestartIsDue(Restart());
  EXPECT_THAT(told(), IsEmpty());
  device_.Become(Kind::kWaiting);
  device_.Become(Kind::kWorking);
  EXPECT_THAT(told(), ElementsAre("lost", "works"));
}

TEST_F(DeviceWatchTest, AsksForARestartOnceServingHasStopped) {
  DeviceWatch watch({&device_}, Options(true));
  watch.WhenRestartIsDue(Restart());
  device_.Become(Kind::kLost);
  device_.Become(Kind::kLost);
  EXPECT_THAT(told(), ElementsAre("lost", "stop", "restart", "lost", "stop")) << "asked for once";
}

TEST_F(DeviceWatchTest, TellsWhichOfSeveralChangesAndRestartsOnce) {
  SaidDevice other(1);
  DeviceWatch watch({&device_, &other}, Options(true));
  watch.WhenRestartIsDue(Restart());
  other.Become(Kind::kLost);
  device_.Become(Kind::kLost);
  EXPECT_THAT(told(), ElementsAre("lost1", "stop", "restart", "lost", "stop"));
}

TEST_F(DeviceWatchTest, RetriesEveryLostDevice) {
  SaidDevice other(1);
  DeviceWatch watch({&device_, &other}, Options(false, absl::Milliseconds(1)));
  other.Become(Kind::kWaiting);
  EXPECT_TRUE(testing::Eventually([&] { return told().size() == 2; }));
  device_.Become(Kind::kWaiting);
  EXPECT_TRUE(testing::Eventually([&] { return told().size() == 4; }));
  EXPECT_THAT(told(), ElementsAre("lost1", "works1", "lost", "works"));
}

TEST_F(DeviceWatchTest, WhoComesLateIsAskedAtOnce) {
  device_.Become(Kind::kLost);
  DeviceWatch watch({&device_}, Options(true));
  EXPECT_THAT(told(), ElementsAre("lost", "stop"));
  watch.WhenRestartIsDue(Restart());
  EXPECT_THAT(told(), ElementsAre("lost", "stop", "restart"));
}

TEST_F(DeviceWatchTest, RetriesALostDeviceWithoutAnyCall) {
  DeviceWatch watch({&device_}, Options(false, absl::Milliseconds(1)));
  device_.Become(Kind::kWaiting);
  EXPECT_TRUE(testing::Eventually([&] { return told().size() == 2; }));
  EXPECT_THAT(told(), ElementsAre("lost", "works"));
}

TEST_F(DeviceWatchTest, TellsNothingOnceItIsGone) {
  { const DeviceWatch watch({&device_}, Options(true)); }
  device_.Become(Kind::kLost);
  EXPECT_THAT(told(), IsEmpty());
}

}  // namespace
}  // namespace phasor
