// SPDX-License-Identifier: Apache-2.0
// Tests on gRPC's own threads how many of them run callbacks, and that none sleeps on duty.
// bench_rpc shows what it is good for.
#include "server/grpc/callback_threads.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "proto/grpc_version.h"
#include "server/server.h"
#include "tests/support/callback_threads.h"
#include "tests/support/eventually.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"

namespace phasor {
namespace {

using testing::Eventually;

class CallbackThreadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PHASOR_GRPC_HAS_CALLBACK_THREADS) GTEST_SKIP() << "this gRPC has no such threads";
  }
};

bool Never() { return false; }

// Calls that fail at once, whose callbacks wait until there are `enough` of them.
class Callbacks {
 public:
  explicit Callbacks(int enough) : enough_(enough), calls_(kMostCallbackThreads) {
    for (Call& call : calls_) {
      stub_.UnaryCall(&call.context, "/", {}, &call.request, &call.response,
                      [this](const grpc::Status&) { Meet(); });
    }
  }
  // Ends them all.
  ~Callbacks() {
    absl::MutexLock lock(&mu_);
    enough_ = 0;
    mu_.Await(absl::Condition(
        +[](Callbacks* self) { return self->ended_ == kMostCallbackThreads; }, this));
  }

  bool HaveMet() {
    absl::MutexLock lock(&mu_);
    return most_ >= enough_;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::Slice nothing;
    grpc::ByteBuffer request{&nothing, 1}, response;
  };

  void Meet() {
    absl::MutexLock lock(&mu_);
    most_ = std::max(most_, ++inside_);
    mu_.Await(absl::Condition(
        +[](Callbacks* self) { return self->most_ >= self->enough_; }, this));
    --inside_;
    ++ended_;
  }

  absl::Mutex mu_;
  int enough_, inside_ = 0, most_ = 0, ended_ = 0;
  grpc::GenericStub stub_{grpc::CreateCustomChannel("", nullptr, {})};
  std::vector<Call> calls_;
};

// Whether `count` callbacks can run at the same time. False only after all had time to come.
bool CanRunAtOnce(int count, absl::Duration time) {
  Callbacks callbacks(count);
  return Eventually([&] { return callbacks.HaveMet(); }, time);
}

TEST_F(CallbackThreadsTest, HalfOfTheUsableCoresReceive) {
  EXPECT_EQ(ReceivingThreads(1), 1);
  EXPECT_EQ(ReceivingThreads(2), 1);
  EXPECT_EQ(ReceivingThreads(3), 1);
  EXPECT_EQ(ReceivingThreads(4), 2);
  EXPECT_EQ(ReceivingThreads(16), 8);
}

TEST_F(CallbackThreadsTest, OneReceivesAndTheOthersAreHeld) {
  const auto server = testing::StartServer();  // or gRPC ends its threads with each channel here
  ASSERT_TRUE(CanRunAtOnce(2, absl::Minutes(1)));
  // On a busy machine some threads come too late to be held.
  EXPECT_TRUE(Eventually([] {
    const CallbackThreads threads(1, Never);
    return threads.spare() >= 1 && !CanRunAtOnce(2, absl::Milliseconds(100));
  }));
  EXPECT_TRUE(CanRunAtOnce(2, absl::Minutes(1)));  // they were returned
}

TEST_F(CallbackThreadsTest, HoldsNoneAsLongAsAllAreUseful) {
  const auto server = testing::StartServer();
  std::atomic<bool> useful = false;
  std::unique_ptr<CallbackThreads> threads;
  ASSERT_TRUE(Eventually([&] {
    threads.reset();
    threads = std::make_unique<CallbackThreads>(1, [&] { return useful.load(); });
    return threads->spare() >= 1;
  }));
  for (int i = 0; i < 3; ++i) {
    useful = true;
    EXPECT_TRUE(CanRunAtOnce(2, absl::Minutes(1)));
    useful = false;
    EXPECT_TRUE(Eventually([] { return !CanRunAtOnce(2, absl::Milliseconds(100)); }));
  }
}

TEST_F(CallbackThreadsTest, HoldsNoneIfAllMayReceive) {
  const auto server = testing::StartServer();
  const CallbackThreads threads(kMostCallbackThreads, Never);
  EXPECT_EQ(threads.spare(), 0);
  EXPECT_TRUE(CanRunAtOnce(2, absl::Minutes(1)));
}

// Calls Encode until `done`. Returns how many calls failed.
int CallUntil(const std::atomic<bool>& done, Server& server, int64_t rows) {
  const auto stub =
      v1::PositionEmbeddingService::NewStub(testing::NewChannel(server.listeners()[0]));
  const v1::EncodeRequest request = testing::EncodeRequestOf(rows);
  int failed = 0;
  while (!done) {
    v1::EncodeResponse response;
    failed +=
        !testing::Call(*stub, &v1::PositionEmbeddingService::Stub::Encode, request, &response).ok();
  }
  return failed;
}

TEST_F(CallbackThreadsTest, AServerReceivesOnAllWhileCallsAreLarge) {
  std::unique_ptr<Server> server;
  ASSERT_TRUE(Eventually([&] {
    server = testing::StartServer();
    server->ReceiveOnFewThreads(/*cores=*/1);
    return !CanRunAtOnce(2, absl::Milliseconds(100));
  }));
  constexpr int64_t kSmall = 1, kLarge = 1 << 15;  // 32 bytes and 1 MiB
  for (const int64_t rows : {kSmall, kLarge, kSmall}) {
    std::atomic<bool> done = false;
    std::thread caller([&] { EXPECT_EQ(CallUntil(done, *server, rows), 0); });
    const auto two = [] { return CanRunAtOnce(2, absl::Milliseconds(100)); };
    EXPECT_TRUE(Eventually([&] { return two() == (rows == kLarge); })) << rows;
    done = true;
    caller.join();
  }
  EXPECT_TRUE(server->Shutdown());
}

// gRPC's threads sleep at least once in 1.1 s if nothing happens.
bool OneSleepsWithin(absl::Duration time) {
  return Eventually([] { return testing::CountCallbackThreads("self").asleep > 0; }, time);
}

TEST_F(CallbackThreadsTest, TheOneThatReceivesNeverSleeps) {
  const auto server = testing::StartServer();
  ASSERT_TRUE(OneSleepsWithin(absl::Minutes(1)));  // as gRPC is
  EXPECT_TRUE(Eventually([] {
    const CallbackThreads threads(1, Never);
    // One that sleeps comes too late to be held, and then sleeps again now and then.
    return threads.spare() >= 1 && !OneSleepsWithin(absl::Seconds(3));
  }));
}

}  // namespace
}  // namespace phasor
