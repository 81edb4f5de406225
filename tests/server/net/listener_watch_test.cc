// SPDX-License-Identifier: Apache-2.0
// Tests the detection of a listener that stopped accepting.
#include "server/net/listener_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "tests/support/eventually.h"
#include "tests/support/listening_socket.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;

class ListenerWatchTest : public ::testing::Test {
 protected:
  ListenerWatchTest() {
    SetLogLevel(LogLevel::kOff);
    options_.addresses = {"127.0.0.1:0"};
  }
  ~ListenerWatchTest() override { SetLogLevel(LogLevel::kInfo); }

  void Start(Listener::Connected connected) {
    auto listener = Listener::Bind(options_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Start(std::move(connected));
    watch_ = std::make_unique<ListenerWatch>(
        listener_.get(),
        [this](bool accepting) {
          MutexLock lock(&mu_);
          told_.push_back(accepting);
        },
        absl::Milliseconds(1));
  }
  std::vector<bool> Told() {
    MutexLock lock(&mu_);
    return told_;
  }

  ListenerOptions options_;
  Mutex mu_;
  std::vector<bool> told_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<ListenerWatch> watch_;
};

TEST_F(ListenerWatchTest, TellsOnceThatASocketNoLongerListens) {
  Start([](int, int fd) { FileDescriptor closes(fd); });
  EXPECT_TRUE(ConnectTo(listener_->addresses()[0]).valid());
  EXPECT_THAT(Told(), ElementsAre());
  ASSERT_TRUE(testing::BreakListener(listener_->addresses()[0]));
  EXPECT_TRUE(testing::Eventually([&] { return !Told().empty(); }));
  watch_.reset();
  EXPECT_THAT(Told(), ElementsAre(false));
}

TEST_F(ListenerWatchTest, TellsThatTheThreadIsStuckAndThatItGoesOn) {
  options_.stuck_after = absl::Seconds(3);  // a turn takes up to a second
  Mutex stuck;
  stuck.Lock();
  Start([&stuck](int, int fd) {
    FileDescriptor closes(fd);
    MutexLock lock(&stuck);
  });
  const FileDescriptor client = ConnectTo(listener_->addresses()[0]);
  EXPECT_TRUE(testing::Eventually([&] { return !Told().empty(); }));
  EXPECT_THAT(Told(), ElementsAre(false));
  stuck.Unlock();
  EXPECT_TRUE(testing::Eventually([&]() -> bool { return Told().back(); }));
}

TEST_F(ListenerWatchTest, EndsWithoutWaitingForItsTurn) {
  auto listener = Listener::Bind(options_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const absl::Time begun = absl::Now();
  ListenerWatch(
      listener->get(), [](bool) {}, absl::Hours(1));
  EXPECT_LT(absl::Now() - begun, absl::Minutes(1));
}

}  // namespace
}  // namespace phasor
