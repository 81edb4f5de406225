// SPDX-License-Identifier: Apache-2.0
// Tests Client over connections made by the tests. Without gRPC, so TSan builds include it.
#include "client/client.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "client/testing/mock_connection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/steady_time.h"

namespace phasor {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::SizeIs;

EncodeResult FloatRow(std::vector<float> row) {
  EncodeResult result;
  result.output = {Dtype::kFloat32, {1, static_cast<int64_t>(row.size())}, {}};
  result.bytes = *Bytes::Allocate(static_cast<int64_t>(row.size() * sizeof(float)));
  std::copy(row.begin(), row.end(), reinterpret_cast<float*>(result.bytes.data()));
  result.info = {.spec_fingerprint = "f", .numerics_version = 1, .backend = "cpu"};
  return result;
}

TEST(ClientTest, EncodeReturnsWhatTheConnectionAnswers) {
  auto connection = std::make_shared<MockConnection>();
  EXPECT_CALL(*connection, Encode).WillOnce(Answer(FloatRow({1, 2})));
  auto rows = Client(connection).Encode({.preset = "p", .dim = 2}, {7});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->shape(), ElementsAre(1, 2));
  EXPECT_THAT(rows->row(0), ElementsAre(1, 2));
  EXPECT_EQ(rows->info().backend, "cpu");
}

TEST(ClientTest, EncodeAsksForTheElementTypeOfItsResult) {
  auto connection = std::make_shared<MockConnection>();
  EXPECT_CALL(*connection, Encode).WillOnce([](EncodeCall call, CallContext, auto done) {
    EXPECT_EQ(call.output_dtype, Dtype::kBFloat16);
    EXPECT_EQ(call.spec.preset, "p");
    done(absl::NotFoundError("item.spec.preset: unknown"));
  });
  auto rows = Client(connection).Encode<BFloat16>({.preset = "p"}, {7});
  EXPECT_EQ(rows.status(), absl::NotFoundError("item.spec.preset: unknown"));
}

TEST(ClientTest, CallerMemoryReachesTheConnection) {
  std::vector<float> out(6);
  auto connection = std::make_shared<MockConnection>();
  EXPECT_CALL(*connection, Encode).Times(2).WillRepeatedly([&](EncodeCall call, auto, auto done) {
    EXPECT_EQ(call.output->data, reinterpret_cast<std::byte*>(out.data()));
    done(EncodeResult{.info = {.backend = "cpu"}});
  });
  const Client client(connection);
  EXPECT_EQ(client.Encode({}, {1, 2}, MutableView(out, {2, 3}))->backend, "cpu");
  EXPECT_TRUE(client.Encode({}, {1, 2}, absl::MakeSpan(out)).ok());
}

TEST(ClientTest, MovesReachTheConnectionWithThePinsOfTheOptions) {
  std::vector<std::byte> pool(8);
  auto connection = std::make_shared<MockConnection>();
  EXPECT_CALL(*connection, MoveKeys).WillOnce([&](MoveCall call, auto, auto done) {
    EXPECT_EQ(call.pools[0].memory().data(), pool.data());
    EXPECT_EQ(call.pins.backend, "cpu");
    done(MoveResult{.tokens = 3});
  });
  const auto result =
      Client(connection).MoveKeys({.pools = {absl::MakeSpan(pool)}}, {.pins = {.backend = "cpu"}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tokens, 3);
}

TEST(ClientTest, RopeTensorsInPlaceAreInputAndOutput) {
  auto q = *Array<float>::Zeros({2, 1, 4});
  auto k = *Array<float>::Zeros({2, 3, 4});
  auto connection = std::make_shared<MockConnection>();
  EXPECT_CALL(*connection, ApplyRoPE).WillOnce([&](RopeCall call, auto, auto done) {
    ASSERT_THAT(call.tensors, SizeIs(2));
    EXPECT_EQ(call.tensors[1].input.data, call.tensors[1].output.data);
    EXPECT_THAT(call.tensors[1].input.desc.shape, ElementsAre(2, 3, 4));
    done(RunInfo{.numerics_version = 1});
  });
  const std::vector<int64_t> positions = {5, 6};
  auto info = Client(connection).ApplyRoPE({.preset = "p"}, positions, {q.view(), k.view()});
  EXPECT_EQ(info->numerics_version, 1u);
}

TEST(ClientTest, EveryCallHasADeadline) {
  auto connection = std::make_shared<MockConnection>();
  std::vector<absl::Time> deadlines;
  EXPECT_CALL(*connection, ListPresets).WillRepeatedly([&](CallContext context, auto done) {
    deadlines.push_back(context.deadline);
    done(std::vector<Preset>());
  });
  const Client client(connection, {.timeout = absl::Hours(1)});
  const absl::Time start = SteadyNow();
  ASSERT_TRUE(client.ListPresets().ok());
  ASSERT_TRUE(client.ListPresets({.timeout = absl::Hours(3)}).ok());
  ASSERT_TRUE(client.ListPresets({.deadline = absl::Now() + absl::Minutes(30)}).ok());
  ASSERT_TRUE(client.ListPresets({.deadline = absl::InfiniteFuture()}).ok());
  EXPECT_GE(deadlines[0], start + absl::Hours(1));
  EXPECT_LT(deadlines[0], start + absl::Hours(2));
  EXPECT_GE(deadlines[1], start + absl::Hours(3));
  EXPECT_GT(deadlines[2], start);
  EXPECT_LT(deadlines[2], start + absl::Hours(1));
  EXPECT_LT(deadlines[3], start + absl::Hours(2));
}

TEST(ClientTest, PagesOfAListShareItsDeadline) {
  auto connection = std::make_shared<MockConnection>();
  std::vector<absl::Time> deadlines;
  EXPECT_CALL(*connection, ListTables).Times(3).WillRepeatedly([&](auto, auto context, auto done) {
    deadlines.push_back(context.deadline);
    done(TablePage{.tables = {{}}, .next_page_token = deadlines.size() < 3 ? "more" : ""});
  });
  const auto tables = Client(connection).ListTables();
  ASSERT_TRUE(tables.ok()) << tables.status();
  EXPECT_EQ(tables->size(), 3u);
  EXPECT_THAT(deadlines, ElementsAre(deadlines[0], deadlines[0], deadlines[0]));
}

TEST(ClientTest, PinsOfTheCallFillItemsWithoutTheirOwn) {
  auto connection = std::make_shared<MockConnection>();
  EXPECT_CALL(*connection, BatchEncode).WillOnce([](auto calls, auto, auto done) {
    EXPECT_EQ(calls[0].pins.numerics_version, 7u);
    EXPECT_EQ(calls[1].pins.backend, "cuda");
    EXPECT_EQ(calls[1].pins.numerics_version, 0u);
    done(absl::AbortedError("enough"));
  });
  std::vector<EncodeCall> calls(2);
  calls[1].pins.backend = "cuda";
  EXPECT_EQ(Client(connection).BatchEncode(calls, {.pins = {.numerics_version = 7}}).status(),
            absl::AbortedError("enough"));
}

TEST(ClientTest, FuturesGetTheAnswer) {
  auto connection = std::make_shared<MockConnection>();
  EXPECT_CALL(*connection, Encode).WillOnce(Answer(FloatRow({3})));
  EXPECT_CALL(*connection, ApplyRoPE).WillOnce(Answer(absl::UnavailableError("down")));
  const Client client(connection);
  auto rows = client.EncodeAsync({}, {1});
  auto info = client.ApplyRoPEAsync(RopeCall{});
  EXPECT_THAT(rows.get()->span(), ElementsAre(3));
  EXPECT_EQ(info.get().status(), absl::UnavailableError("down"));
}

// Answers on threads of its own, as a transport does, in any order.
class ThreadedConnection : public MockConnection {
 public:
  ThreadedConnection() {
    for (int i = 0; i < 3; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~ThreadedConnection() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Encode(EncodeCall call, CallContext, Done<EncodeResult> done) override {
    const float dim = static_cast<float>(*call.spec.dim);
    std::lock_guard lock(mutex_);
    queue_.push_back([dim, done = std::move(done)]() mutable { done(FloatRow({dim})); });
    changed_.notify_one();
  }

 private:
  void Work() {
    while (true) {
      absl::AnyInvocable<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (queue_.empty()) return;
        task = std::move(queue_.back());  // last in, first out
        queue_.pop_back();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::deque<absl::AnyInvocable<void()>> queue_;
  std::vector<std::thread> threads_;
};

TEST(ClientTest, CopiesShareAConnectionAcrossThreads) {
  const Client client(std::make_shared<ThreadedConnection>());
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([copy = client, t, &right] {
      for (int i = 0; i < 50; ++i) {
        auto rows = copy.Encode({.dim = t * 100 + i}, {0});
        right += rows.ok() && rows->span()[0] == static_cast<float>(t * 100 + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
}

TEST(ClientTest, AsynchronousAnswersFindTheirOwnCalls) {
  const Client client(std::make_shared<ThreadedConnection>());
  std::vector<std::future<absl::StatusOr<Array<float>>>> futures;
  for (int i = 0; i < 100; ++i) futures.push_back(client.EncodeAsync({.dim = i}, {0}));
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(futures[i].get()->span(), ElementsAre(static_cast<float>(i)));
  }
}

}  // namespace
}  // namespace phasor
