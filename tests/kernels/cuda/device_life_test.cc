// SPDX-License-Identifier: Apache-2.0
// The states of a device: loss, waits, revival, and who is told of them.
#include "kernels/cuda/device_life.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

namespace phasor::cuda {
namespace {

using Kind = DeviceState::Kind;
using std::chrono::milliseconds;

// A DeviceLife with a clock that stands still and a revival that the test controls.
struct LifeFixture {
  explicit LifeFixture(bool retry = true)
      : life({.retry = retry,
              .first_wait = milliseconds(100),
              .longest_wait = milliseconds(350),
              .now = [this] { return now; }},
             [this] {
               ++revivals;
               return revived;
             }) {}

  void Lose() { life.Note(absl::UnavailableError("lost")); }
  bool Enters() { return static_cast<bool>(life.Enter()); }

  DeviceLifeOptions::Tick now;
  int revivals = 0;
  absl::Status revived;
  DeviceLife life;
};

TEST(DeviceLifeTest, OnlyUnavailableLosesTheDevice) {
  LifeFixture f;
  f.life.Note(absl::InternalError("refused"));
  f.life.Note(absl::ResourceExhaustedError("full"));
  f.life.Note(absl::OkStatus());
  EXPECT_TRUE(f.Enters());
  EXPECT_EQ(f.life.state(), DeviceState());
  f.Lose();
  EXPECT_FALSE(f.Enters());
  EXPECT_FALSE(f.life.EnterIfWorking());
  EXPECT_EQ(f.life.state().kind, Kind::kWaiting);
  EXPECT_EQ(f.life.state().error, "lost");
}

TEST(DeviceLifeTest, WithoutRetryItStaysLost) {
  LifeFixture f(/*retry=*/false);
  f.Lose();
  f.now += std::chrono::hours(1);
  EXPECT_FALSE(f.Enters());
  EXPECT_EQ(f.life.state().kind, Kind::kLost);
  EXPECT_EQ(f.revivals, 0);
}

TEST(DeviceLifeTest, RevivesAfterTheWaitAndOnlyThroughEnter) {
  LifeFixture f;
  f.Lose();
  f.now += milliseconds(99);
  EXPECT_FALSE(f.Enters());
  EXPECT_EQ(f.revivals, 0);
  f.now += milliseconds(1);
  EXPECT_FALSE(f.life.EnterIfWorking());
  EXPECT_EQ(f.life.context(), 0);
  EXPECT_TRUE(f.Enters());
  EXPECT_EQ(f.life.context(), 1);
  EXPECT_EQ(f.life.state().kind, Kind::kWorking);
  EXPECT_EQ(f.life.state().losses, 1);
  EXPECT_EQ(f.life.state().wait_ms, 0);
}

TEST(DeviceLifeTest, OnlyOneCallerRevives) {
  int revivals = 0;
  DeviceLife* all = nullptr;
  DeviceLife life({.retry = true, .first_wait = milliseconds(0)}, [&] {
    if (++revivals == 1) {
      EXPECT_FALSE(all->Enter()) << "another caller, meanwhile";
    }
    return absl::OkStatus();
  });
  all = &life;
  life.Note(absl::UnavailableError("lost"));
  EXPECT_TRUE(life.Enter());
  EXPECT_EQ(revivals, 1);
}

TEST(DeviceLifeTest, WaitsDoubleUntilTheDeviceHasWorkedForLong) {
  LifeFixture f;
  std::vector<int64_t> waits;
  const auto lose = [&] {
    f.Lose();
    waits.push_back(f.life.state().wait_ms);
    f.now += milliseconds(waits.back());
    EXPECT_TRUE(f.Enters());
  };
  for (int i = 0; i < 4; ++i) lose();
  f.now += milliseconds(3499);
  lose();
  f.now += milliseconds(3500);
  lose();
  EXPECT_EQ(waits, (std::vector<int64_t>{100, 200, 350, 350, 350, 100}));
}

TEST(DeviceLifeTest, ARevivalThatFailsWaitsLonger) {
  LifeFixture f;
  f.Lose();
  f.revived = absl::UnavailableError("still lost");
  f.now += milliseconds(100);
  EXPECT_FALSE(f.Enters());
  EXPECT_EQ(f.revivals, 1);
  EXPECT_EQ(f.life.state().error, "still lost");
  EXPECT_EQ(f.life.state().wait_ms, 200);
  EXPECT_FALSE(f.Enters());
  EXPECT_EQ(f.revivals, 1);
  f.revived = absl::OkStatus();
  f.now += milliseconds(200);
  EXPECT_TRUE(f.Enters());
}

TEST(DeviceLifeTest, NobodyUsesTheOldContextWhenItEnds) {
  LifeFixture f;
  {
    const DeviceLife::Use use = f.life.Enter();
    f.Lose();
    f.now += milliseconds(1000);
    EXPECT_FALSE(f.Enters()) << "somebody uses it";
    EXPECT_EQ(f.revivals, 0);
  }
  EXPECT_TRUE(f.Enters());
}

TEST(DeviceLifeTest, TellsWhoWatchesEveryChange) {
  LifeFixture f;
  std::vector<Kind> seen;
  f.life.Watch([&] { seen.push_back(f.life.state().kind); });
  f.Lose();
  f.Lose();
  f.now += milliseconds(100);
  EXPECT_TRUE(f.Enters());
  f.life.Watch(nullptr);
  f.Lose();
  EXPECT_EQ(seen, (std::vector<Kind>{Kind::kWaiting, Kind::kWorking}));
}

TEST(DeviceLifeTest, WhoeverIsToldMayUseTheDevice) {
  LifeFixture f;
  std::vector<Kind> seen;
  f.life.Watch([&] {
    seen.push_back(f.life.state().kind);
    f.now += milliseconds(100);
    EXPECT_TRUE(f.Enters());  // which reports the revival
  });
  f.Lose();
  EXPECT_EQ(seen, (std::vector<Kind>{Kind::kWaiting, Kind::kWorking}));
}

TEST(DeviceLifeTest, NobodyIsToldAnyMoreOnceTheWatchHasEnded) {
  LifeFixture f;
  std::promise<void> told, go;
  bool returned = false;
  f.life.Watch([&] {
    told.set_value();
    go.get_future().wait();
    returned = true;
  });
  std::thread loser([&] { f.Lose(); });
  told.get_future().wait();
  std::thread ender([&] {
    f.life.Watch(nullptr);
    EXPECT_TRUE(returned);
  });
  go.set_value();
  ender.join();
  loser.join();
}

}  // namespace
}  // namespace phasor::cuda
