// SPDX-License-Identifier: Apache-2.0
// Tests on gRPC's own threads how many of them run callbacks, and that none sleeps on duty.
// bench_rpc shows what it is good for.
#include "server/grpc/callback_threads.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "proto/grpc_version.h"
#include "server/server.h"
#include "tests/support/callback_threads.h"
#include "tests/support/eventually.h"
#include "tests/support/http_get.h"
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

// Calls Encode of these numbers of rows in turn, again and again, while it exists.
class Caller {
 public:
  Caller(Server& server, std::vector<int64_t> rows)
      : thread_([this, address = server.listeners()[0], rows = std::move(rows)] {
          const auto stub = v1::PositionEmbeddingService::NewStub(testing::NewChannel(address));
          for (size_t i = 0; !done_; ++i) {
            const v1::EncodeRequest request = testing::EncodeRequestOf(rows[i % rows.size()]);
            v1::EncodeResponse response;
            EXPECT_TRUE(testing::Call(*stub, &v1::PositionEmbeddingService::Stub::Encode, request,
                                      &response)
                            .ok());
          }
        }) {}
  ~Caller() {
    done_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

constexpr int64_t kSmall = 1, kLarge = 1 << 15;  // 32 bytes and 1 MiB

TEST_F(CallbackThreadsTest, AServerReceivesOnAllWhileSmallAndLargeCallsCome) {
  std::unique_ptr<Server> server;
  ASSERT_TRUE(Eventually([&] {
    server = testing::StartServer();
    server->ReceiveOnFewThreads(/*cores=*/1);
    return !CanRunAtOnce(2, absl::Milliseconds(100));
  }));
  using Rows = std::vector<int64_t>;
  for (const Rows& rows : {Rows{kSmall}, {kSmall, kLarge}, {kLarge}, {kSmall, kLarge}, {kSmall}}) {
    const Caller caller(*server, rows);
    const auto two = [] { return CanRunAtOnce(2, absl::Milliseconds(100)); };
    EXPECT_TRUE(Eventually([&] { return two() == (rows.size() == 2); })) << rows.size();
  }
  EXPECT_TRUE(server->Shutdown());
}

// How many calls a server computed on the thread that received them, and on others.
struct ComputedCalls {
  explicit ComputedCalls(const Server& server) {
    std::string page;
    const auto value = [&](const char* path) {
      const std::string series = absl::StrCat("phasor_calls_total{path=\"", path, "\"} ");
      const size_t at = page.find(series);
      return at == std::string::npos ? -1 : std::atof(page.c_str() + at + series.size());
    };
    do {
      page = testing::HttpGet(server.metrics_listeners()[0], "/metrics");
      here = value("inline");
      queued = value("queued");
    } while (here < 0 || queued < 0);
  }
  double here, queued;
};

TEST_F(CallbackThreadsTest, LargeCallsAreComputedWhereTheyWereReceivedUnlessSmallOnesCome) {
  ServerOptions options = testing::TestOptions();
  options.metrics_listen = {"127.0.0.1:0"};
  const auto server = testing::StartServer(options);
  server->ReceiveOnFewThreads(/*cores=*/1);
  using Rows = std::vector<int64_t>;
  for (const Rows& rows : {Rows{kSmall, kLarge}, {kLarge}, {kSmall, kLarge}, {16 * kLarge}}) {
    const bool queues = rows != Rows{kLarge};
    const Caller caller(*server, rows);
    // For ten calls on end.
    EXPECT_TRUE(Eventually([&] {
      const ComputedCalls before(*server);
      ComputedCalls now = before;
      while (now.here + now.queued < before.here + before.queued + 10) now = ComputedCalls(*server);
      return (now.queued > before.queued) == queues;
    })) << rows.size();
  }
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
