// SPDX-License-Identifier: Apache-2.0
// Tests that thousands of calls, cancelled at random moments, leave nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/steady_time.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/server/api/test_server.h"
#include "tests/support/eventually.h"
#include "tests/support/patience.h"
#include "tests/support/requests.h"

namespace phasor::rpc {
namespace {

constexpr int kThreads = 64;
constexpr int kCalls = 10'000;

// With a backend that wants calls together, and one that does not.
class CancellationStorm : public ::testing::TestWithParam<bool> {
 protected:
  CancellationStorm()
      : server_(Options(), {}, absl::ZeroDuration(),
                GetParam() ? BatchPolicy{.bytes = 1 << 20, .runs = 2} : BatchPolicy{}) {
    requests_ = {{"Encode", testing::EncodeRequestOf(1).SerializeAsString()},
                 {"Encode", testing::EncodeRequestOf(3000).SerializeAsString()},
                 {"ApplyRoPE", testing::RopeRequestOf(2).SerializeAsString()},
                 {"ApplyRoPE", testing::RopeRequestOf(2000).SerializeAsString()}};
  }

  static engine::EngineOptions Options() {
    engine::EngineOptions options;
    options.workers = 2;
    options.inline_bytes = 4096;
    return options;
  }

  // Makes calls until all threads together have made kCalls.
  template <typename MakeCall>
  void Storm(MakeCall make_call) {
    std::atomic<int> next = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<uint32_t>(t));
        for (int i = next++; i < kCalls; i = next++) {
          const grpc::StatusCode code = make_call(i, random);
          const std::lock_guard<std::mutex> lock(mutex_);
          ++ended_[code];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Every call ended in one of three ways, all of them in the engine too, and left nothing there.
  void ExpectNothingStays() {
    int ended = 0;
    for (const auto& [code, count] : ended_) {
      EXPECT_THAT(code, ::testing::AnyOf(grpc::StatusCode::OK, grpc::StatusCode::CANCELLED,
                                         grpc::StatusCode::DEADLINE_EXCEEDED));
      ended += count;
    }
    EXPECT_EQ(ended, kCalls);
    for (const grpc::StatusCode code :
         {grpc::StatusCode::OK, grpc::StatusCode::CANCELLED, grpc::StatusCode::DEADLINE_EXCEEDED}) {
      EXPECT_GE(ended_[code], kCalls / 100) << code;
    }
    // Answers are gone once the transport has let go of them.
    EXPECT_TRUE(testing::Eventually([&] { return server_.engine().stats().inflight_bytes == 0; }));
    const engine::EngineStats stats = server_.engine().stats();
    EXPECT_EQ(stats.queued_calls, 0);
    EXPECT_EQ(stats.waiting_calls, 0);
    EXPECT_EQ(stats.calls_refused, 0);
    EXPECT_GT(stats.calls_queued, 0);
    EXPECT_EQ(stats.batches > 0, GetParam());
    EXPECT_TRUE(server_.engine().Drain(SteadyNow() + absl::Seconds(10)));
  }

  std::vector<std::pair<std::string, std::string>> requests_;  // method and message
  TestServer server_;
  testing::Patience patience_;
  std::mutex mutex_;
  std::map<grpc::StatusCode, int> ended_;
};

TEST_P(CancellationStorm, OfCallsLeavesNothing) {
  Storm([&](int i, std::mt19937& random) {
    const auto& [method, bytes] = requests_[static_cast<size_t>(i / 3) % requests_.size()];
    const absl::Duration patience = patience_.Draw(random);
    const absl::Time start = absl::Now();
    const bool endless = testing::Patience::IsEndless(i);
    const bool cancels = !endless && i % 3 != 1;
    PendingCall call;
    if (!endless && !cancels) call.context.set_deadline(absl::ToChronoTime(start + patience));
    server_.Start(method, bytes, &call);
    if (endless) {
      call.done.WaitForNotification();
      patience_.Took(absl::Now() - start);
    } else if (cancels) {
      call.done.WaitForNotificationWithTimeout(patience);
      call.context.TryCancel();
    }
    call.done.WaitForNotification();
    return call.status.error_code();
  });
  ExpectNothingStays();
}

TEST_P(CancellationStorm, OfStreamsLeavesNothing) {
  const auto stub = v1::PositionEmbeddingService::NewStub(server_.channel());
  v1::StreamEncodeRequest item;
  *item.mutable_item() = testing::EncodeOf(200);
  Storm([&](int i, std::mt19937& random) {
    const absl::Duration patience = patience_.Draw(random);
    const absl::Time start = absl::Now();
    grpc::ClientContext context;
    if (i % 3 == 1) context.set_deadline(absl::ToChronoTime(start + patience));
    const auto stream = stub->StreamEncode(&context);
    const int items = static_cast<int>(random() % 8);
    for (int n = 0; n < items; ++n) stream->Write(item);
    if (i % 3 == 2 && items > 4) context.TryCancel();
    // Some can end by their deadline only: others may be done before a busy machine notices it.
    if (i % 3 != 1 || items < 7) stream->WritesDone();
    v1::StreamEncodeResponse response;
    for (int n = 0; n < items / 2; ++n) stream->Read(&response);
    if (i % 3 == 2) context.TryCancel();
    while (stream->Read(&response)) {
    }
    const grpc::StatusCode code = stream->Finish().error_code();
    if (i % 3 == 0) patience_.Took(absl::Now() - start);
    return code;
  });
  ExpectNothingStays();
}

INSTANTIATE_TEST_SUITE_P(Backends, CancellationStorm, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Batches" : "OneByOne"; });

}  // namespace
}  // namespace phasor::rpc
