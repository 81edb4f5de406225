// SPDX-License-Identifier: Apache-2.0
// Tests which calls are staged, and what happens to the memory, against the server's own lease
// socket. tests/e2e/client_shared_test.cc tests whole calls.
#include "client/shared/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "kernels/base/steady_time.h"
#include "server/memory/lease_socket.h"
#include "server/net/listen_socket.h"
#include "tests/client/shared/answerer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::client_internal {
namespace {

constexpr int64_t kMebi = 1 << 20;

class StagingTest : public ::testing::Test {
 protected:
  // What a connection does: asks, and is told at once.
  StagingPool::AskServer Ask() {
    return [this](Done<ServerInfo> done) {
      ++asked_;
      if (!info_.has_value()) return done(absl::UnavailableError("no server"));
      done(*info_);
    };
  }
  void Connect() {
    info_ = ServerInfo{.lease_socket = path_, .lease_instance = store_.instance()};
    leases_->Keep(*LeaseClient::Connect(info_->lease_socket, info_->lease_instance));
  }
  std::unique_ptr<StagingPool::Block> Take(int64_t bytes) { return pool_->Take(bytes, Ask()); }

  // `tokens` rows of 64 floats.
  static RopeCall CallOf(std::vector<float>& x, int64_t tokens) {
    return {.spec = {.preset = "llama-2", .head_dim = 64},
            .positions = IntegerRange{.count = tokens},
            .tensors = {MutableView(x, {tokens, 1, 64})}};
  }

  const testing::TempDir dir_;
  const std::string path_ = dir_.path() + "/lease.sock";
  const std::vector<ListenSocket> listeners_ = *Listen(*ParseListenAddress("unix:" + path_));
  memory::LeaseStore store_{{.max_bytes = 8 * kMebi, .max_pieces = 3}};
  std::optional<memory::LeaseSocket> socket_{std::in_place, listeners_[0].fd(), &store_};
  const std::shared_ptr<LeaseHolder> leases_ = std::make_shared<LeaseHolder>();
  const std::shared_ptr<StagingPool> pool_ = std::make_shared<StagingPool>(leases_, 4 * kMebi);
  int asked_ = 0;
  std::optional<ServerInfo> info_;
};

TEST_F(StagingTest, TheServerIsAskedOnceAndLaterCallsAreStaged) {
  EXPECT_EQ(Take(1), nullptr);
  EXPECT_EQ(Take(1), nullptr);
  EXPECT_EQ(asked_, 1) << "a server without leases is not asked all the time";
  Connect();
  EXPECT_NE(Take(1), nullptr);
  EXPECT_EQ(asked_, 1);
}

TEST_F(StagingTest, BlocksAreUsedAgainOnlyWhenTheServerIsDoneWithThem) {
  Connect();
  auto block = Take(kMebi);
  const std::byte* const data = block->data();
  block->Reuse();
  block.reset();
  EXPECT_EQ(store_.stats().pieces, 1) << "it waits for use";
  block = Take(kMebi);
  EXPECT_EQ(block->data(), data);
  block.reset();
  EXPECT_EQ(store_.stats().pieces, 0) << "a call that failed may still be written to";
}

// A call that must be sent by its deadline does not wait longer for memory.
TEST_F(StagingTest, ADeadlineEndsTheWaitForMemory) {
  const auto stages = [&](const auto& call) {
    const std::string path = dir_.path() + "/late.sock";
    absl::Notification late;
    const Answerer answerer(path, {"OK token me\n"}, &late);
    const auto leases = std::make_shared<LeaseHolder>();
    leases->Keep(*LeaseClient::Connect(path, "me"));
    unlink(path.c_str());
    const auto pool = std::make_shared<StagingPool>(leases, 4 * kMebi);
    const Later answers([&] { late.Notify(); });
    return Stage(call, *pool, Ask(), SteadyNow()) != nullptr;
  };
  std::vector<float> x(2048 * 64);
  EXPECT_FALSE(stages(CallOf(x, 2048)));
  EXPECT_FALSE(stages(EncodeCall{.spec = {.preset = "transformer", .dim = 64},
                                 .positions = IntegerRange{.count = 2048},
                                 .output = MutableView(x, {2048, 64})}));
}

// Whoever asks for it may have the answer of its call already.
TEST_F(StagingTest, NobodyWaitsForASocketThatIsFull) {
  const std::string path = dir_.path() + "/full.sock";
  const int listener = ListenAt(path, /*backlog=*/0);
  const auto other = LeaseClient::Connect(path, "me");
  info_ = ServerInfo{.lease_socket = path, .lease_instance = "me"};
  {
    const Later accepts([&] { close(accept(listener, nullptr, nullptr)); });
    EXPECT_EQ(Take(1), nullptr);
    EXPECT_EQ(leases_->Get(), nullptr);
  }
  close(listener);
}

TEST_F(StagingTest, MemoryIsBoundedAndMadeRoomFor) {
  Connect();
  auto one = Take(3 * kMebi);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(Take(2 * kMebi), nullptr);
  EXPECT_EQ(Take(5 * kMebi), nullptr) << "more than all";
  one->Reuse();
  one.reset();
  EXPECT_NE(Take(4 * kMebi), nullptr) << "what waits for use gives way";
  EXPECT_EQ(store_.stats().pieces, 0);
  EXPECT_NE(Take(4 * kMebi), nullptr) << "what was given back counts no more";
}

TEST_F(StagingTest, WhatTheServerDoesNotTakeIsNotStaged) {
  Connect();
  const auto one = Take(1), two = Take(1);
  auto three = Take(1);
  ASSERT_NE(three, nullptr);
  EXPECT_EQ(Take(1), nullptr);
  three.reset();
  EXPECT_EQ(store_.stats().pieces, 2);
  EXPECT_EQ(Take(1), nullptr) << "it is not asked again at once";
}

TEST_F(StagingTest, MemoryOfAServerThatEndedIsNotUsedAgain) {
  Connect();
  auto block = Take(kMebi);
  block->Reuse();
  block.reset();
  auto used = Take(2 * kMebi);
  used->Reuse();
  socket_.reset();
  used.reset();
  EXPECT_EQ(Take(kMebi), nullptr);
  socket_.emplace(listeners_[0].fd(), &store_);
  Connect();
  EXPECT_NE(Take(4 * kMebi), nullptr) << "what the old one had counts no more";
}

TEST_F(StagingTest, LargeTensorsAreCopiedInAndOut) {
  Connect();
  constexpr int64_t kTokens = 2000;
  std::vector<float> x(kTokens * 128);
  std::iota(x.begin(), x.end(), 0.f);
  // Every second row.
  RopeCall call = CallOf(x, kTokens);
  call.tensors[0].input.desc.strides = call.tensors[0].output.desc.strides = {128, 64, 1};
  call.tensors[0].input.bytes = call.tensors[0].output.bytes =
      static_cast<int64_t>(x.size() * sizeof(float));
  const auto staged = Stage(call, *pool_, Ask());
  ASSERT_NE(staged, nullptr);
  const MutableTensorView& place = staged->call.tensors[0].output;
  EXPECT_EQ(staged->call.tensors[0].input.data, place.data) << "in place";
  EXPECT_TRUE(place.desc.strides.empty());
  EXPECT_TRUE(leases_->Get()->Find(place.data, place.bytes).has_value());
  auto* const numbers = reinterpret_cast<float*>(place.data);
  EXPECT_EQ(numbers[64], 128.f);
  numbers[64] = -1;
  EXPECT_EQ(x[128], 128.f) << "the caller's memory is written on success only";
  staged->Finish();
  EXPECT_EQ(x[128], -1.f);
  EXPECT_EQ(x[64], 64.f) << "gaps stay";
}

TEST_F(StagingTest, OutputsOfAnotherTypeHaveTheirOwnPlace) {
  Connect();
  constexpr int64_t kTokens = 2048;
  std::vector<BFloat16> x(kTokens * 64, BFloat16{0x3F80});
  std::vector<Float8E4M3> y(kTokens * 64);
  RopeCall call{.spec = {.preset = "llama-2", .head_dim = 64},
                .positions = IntegerRange{.count = kTokens}};
  call.tensors.emplace_back(View(x, {kTokens, 1, 64}), MutableView(y, {kTokens, 1, 64}));
  call.tensors[0].inv_scale = 3.0f;
  const auto staged = Stage(call, *pool_, Ask());
  ASSERT_NE(staged, nullptr);
  const RopeTensor& place = staged->call.tensors[0];
  EXPECT_EQ(place.output.data - place.input.data, kTokens * 64 * 2);
  EXPECT_EQ(place.output.desc.dtype, Dtype::kFloat8E4M3);
  EXPECT_EQ(place.inv_scale, 3.0f);
  place.output.data[7] = std::byte{0x38};
  staged->Finish();
  EXPECT_EQ(y[7].bits, 0x38);
  EXPECT_EQ(y[8].bits, 0);
  call.paged.emplace();
  EXPECT_EQ(Stage(call, *pool_, Ask()), nullptr) << "caches are where they are";
}

TEST_F(StagingTest, WhatIsSmallOrWrongOrSharedTravels) {
  Connect();
  std::vector<float> x(64 * 1024);
  RopeCall call = CallOf(x, 1024);
  EXPECT_NE(Stage(call, *pool_, Ask()), nullptr);
  EXPECT_EQ(Stage(CallOf(x, 1023), *pool_, Ask()), nullptr) << "below the threshold";
  call.tensors[0].input.bytes = 1;
  EXPECT_EQ(Stage(call, *pool_, Ask()), nullptr) << "not valid";
  const SharedMemory shared = *leases_->Get()->Allocate(kMebi);
  call.tensors = {MutableTensorView{{Dtype::kFloat32, {1024, 1, 64}, {}}, shared.data(), 262144}};
  EXPECT_EQ(Stage(call, *pool_, Ask()), nullptr) << "shared already";
  call.tensors.insert(call.tensors.begin(), CallOf(x, 1024).tensors[0]);
  EXPECT_EQ(Stage(call, *pool_, Ask()), nullptr) << "the server changes one in place";
}

TEST_F(StagingTest, EncodingsAreStagedWhereTheirOutputIsKnown) {
  Connect();
  std::vector<float> rows(1024 * 64, 1.f), embeddings(rows.size(), 2.f);
  EncodeCall call{.spec = {.preset = "transformer", .dim = 64},
                  .positions = IntegerRange{.count = 1024}};
  EXPECT_EQ(Stage(call, *pool_, Ask()), nullptr);
  call.output = MutableView(rows, {static_cast<int64_t>(rows.size())});
  EXPECT_EQ(Stage(call, *pool_, Ask()), nullptr) << "rows of any width";
  call.output = MutableView(rows, {1024, 64});
  call.add_to = View(embeddings, {1024, 64});
  const auto staged = Stage(call, *pool_, Ask());
  ASSERT_NE(staged, nullptr);
  EXPECT_EQ(reinterpret_cast<const float*>(staged->call.add_to->data)[5], 2.f);
  staged->Finish();
  EXPECT_EQ(rows[5], 2.f);
}

TEST_F(StagingTest, ACallThatWasGivenUpIsNotMadeAgain) {
  EXPECT_FALSE(MayTravel(absl::CancelledError("")));
  EXPECT_FALSE(MayTravel(absl::DeadlineExceededError("")));
  EXPECT_TRUE(MayTravel(absl::NotFoundError("")));
  EXPECT_TRUE(MayTravel(absl::UnavailableError("")));
}

}  // namespace
}  // namespace phasor::client_internal
