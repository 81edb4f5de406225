// SPDX-License-Identifier: Apache-2.0
// Tests in processes of their own which calls keep one of gRPC's threads awake.
#include "client/grpc/callback_threads.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "absl/synchronization/notification.h"
#include "client/grpc/grpc_channel.h"
#include "client/grpc/raw_stream.h"
#include "kernels/base/steady_time.h"
#include "proto/grpc_version.h"
#include "tests/support/callback_threads.h"

namespace phasor::client_internal {
namespace {

constexpr char kNobody[] = "unix:/nobody/listens/here";

class CallbackThreadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PHASOR_GRPC_HAS_CALLBACK_THREADS) GTEST_SKIP() << "this gRPC has no such threads";
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // begins the test again in a new process
  }
};

void ExitBy(bool success) { std::_Exit(success ? 0 : 1); }

void Call(bool caller_waits) {
  GrpcChannel channel(kNobody, {.max_attempts = 1});
  absl::Notification done;
  RawCall call{.method = "/a.B/C", .header = "", .raw = {}};
  call.done = [&](const absl::Status&) { done.Notify(); };
  channel.Start(std::move(call),
                {.deadline = SteadyNow() + absl::Seconds(30), .caller_waits = caller_waits});
  done.WaitForNotification();
}

void Stream() {
  const GrpcChannel channel(kNobody, {});
  const RawStream stream(channel.channel(), "/a.B/C", {});
}

TEST_F(CallbackThreadsTest, ThereAreNoneIfCallersWait) {
  const auto none = [] { return testing::CountCallbackThreads("self").all == 0; };
  EXPECT_EXIT((Call(/*caller_waits=*/true), ExitBy(none())), ::testing::ExitedWithCode(0), "");
}

TEST_F(CallbackThreadsTest, OneIsAwakeAfterAnAsynchronousCall) {
  EXPECT_EXIT(
      (Call(/*caller_waits=*/false), ExitBy(testing::OneCallbackThreadIsAlwaysAwake("self"))),
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CallbackThreadsTest, OneIsAwakeAfterAStream) {
  EXPECT_EXIT((Stream(), ExitBy(testing::OneCallbackThreadIsAlwaysAwake("self"))),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace phasor::client_internal
