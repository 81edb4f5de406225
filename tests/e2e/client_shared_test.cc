// SPDX-License-Identifier: Apache-2.0
// Tests shared memory end to end: the bytes equal those of inline calls, whatever clients do to it.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/shared/lease_client.h"
#include "gmock/gmock.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/e2e/shared_server.h"
#include "tests/support/eventually.h"
#include "tests/support/patience.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;

TEST_F(ClientSharedTest, RotationsHaveTheBytesOfOrdinaryOnes) {
  for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    for (const int64_t tokens : {0, 1, 700}) {
      const int64_t bytes = tokens * 3 * 64 * SizeOf(dtype);
      const SharedMemory memory = Shared(unix_, 2 * bytes + 100);
      std::byte* const q = memory.data() + 64;
      std::byte* const out = q + bytes;
      Fill(q, bytes, dtype);
      std::vector<std::byte> expected(static_cast<size_t>(bytes));
      const TensorView input = ViewOf(q, dtype, {tokens, 3, 64});
      const RopeTensor ordinary(input, ViewOf(expected.data(), dtype, {tokens, 3, 64}));
      const IntegerRange positions{.start = 5, .count = tokens};
      ASSERT_TRUE(here_.ApplyRoPE(kLlama, positions, {ordinary}).ok());
      const RopeTensor elsewhere(input, ViewOf(out, dtype, {tokens, 3, 64}));
      auto info = unix_.ApplyRoPE(kLlama, positions, {elsewhere});
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(std::memcmp(out, expected.data(), expected.size()), 0);
      info = unix_.ApplyRoPE(kLlama, positions, {ViewOf(q, dtype, {tokens, 3, 64})});
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(std::memcmp(q, expected.data(), expected.size()), 0) << "in place";
    }
  }
}

// q, k and v of a token side by side, as a fused projection writes them: only q and k turn.
TEST_F(ClientSharedTest, FusedBuffersAreRotatedInPlace) {
  constexpr int64_t kTokens = 300, kRow = (8 + 2 + 2) * 64;
  const SharedMemory memory = Shared(tcp_, kTokens * kRow * 2);
  Fill(memory.data(), memory.size(), Dtype::kBFloat16);
  std::vector<std::byte> expected(memory.data(), memory.data() + memory.size());
  const auto views = [&](std::byte* data) {
    const auto part = [&](int64_t first, int64_t heads) {
      return ViewOf(data + first * 64 * 2, Dtype::kBFloat16, {kTokens, heads, 64}, {kRow, 64, 1});
    };
    return std::vector<RopeTensor>{part(0, 8), part(8, 2)};
  };
  const IntegerRange positions{.count = kTokens};
  ASSERT_TRUE(here_.ApplyRoPE(kLlama, positions, views(expected.data())).ok());
  const auto info = tcp_.ApplyRoPE(kLlama, positions, views(memory.data()));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(std::memcmp(memory.data(), expected.data(), expected.size()), 0);
}

TEST_F(ClientSharedTest, EncodingsAreWrittenAndAddedInPlace) {
  constexpr int64_t kTokens = 500, kDim = 32;
  const SharedMemory memory = Shared(unix_, kTokens * kDim * 4);
  Fill(memory.data(), memory.size(), Dtype::kFloat32);
  const MutableTensorView rows = ViewOf(memory.data(), Dtype::kFloat32, {kTokens, kDim});
  EncodeCall call{.spec = {.preset = "transformer", .dim = kDim},
                  .positions = IntegerRange{.count = kTokens},
                  .add_to = rows,
                  .embedding_scale = 2};
  auto expected = here_.Encode(call);
  ASSERT_TRUE(expected.ok());
  call.output = rows;
  auto result = unix_.Encode(call);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(std::memcmp(memory.data(), expected->bytes.data(), memory.size()), 0);
  call.add_to.reset();
  call.embedding_scale = 1;
  expected = here_.Encode({.spec = call.spec, .positions = call.positions});
  result = unix_.Encode(call);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(std::memcmp(memory.data(), expected->bytes.data(), memory.size()), 0);
}

TEST_F(ClientSharedTest, ACallMayMixSharedAndOrdinaryMemory) {
  std::vector<float> q(100 * 64), q_out(q.size());
  std::iota(q.begin(), q.end(), 0.f);
  const SharedMemory memory = Shared(unix_, static_cast<int64_t>(2 * q.size() * 4));
  std::memcpy(memory.data(), q.data(), q.size() * 4);
  const std::vector<int64_t> shape = {100, 1, 64};
  const MutableTensorView in = ViewOf(memory.data(), Dtype::kFloat32, shape);
  const MutableTensorView out = ViewOf(memory.data() + q.size() * 4, Dtype::kFloat32, shape);
  std::vector<float> expected = q;
  const IntegerRange positions{.count = 100};
  ASSERT_TRUE(here_.ApplyRoPE(kLlama, positions, {MutableView(expected, shape)}).ok());
  auto info =
      unix_.ApplyRoPE(kLlama, positions,
                      {RopeTensor(in, MutableView(q_out, shape)), RopeTensor(View(q, shape), out)});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(q_out, expected);
  EXPECT_EQ(std::memcmp(out.data, expected.data(), expected.size() * 4), 0);
}

TEST_F(ClientSharedTest, BiasesTravelFromSharedMemory) {
  const SharedMemory memory = Shared(unix_, 2 * 8 * 8 * 4);
  Fill(memory.data(), memory.size(), Dtype::kFloat32);
  BiasCall call{.spec = {.preset = "alibi"}, .heads = 2};
  call.query_positions = call.key_positions = IntegerRange{.count = 8};
  call.add_to = ViewOf(memory.data(), Dtype::kFloat32, {2, 8, 8});
  const auto expected = here_.AttentionBias(call);
  const auto result = unix_.AttentionBias(call);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(std::memcmp(result->bytes.data(), expected->bytes.data(), memory.size()), 0);
}

TEST_F(ClientSharedTest, ErrorsAreThoseOfOrdinaryCalls) {
  const SharedMemory memory = Shared(unix_, 4 * 64 * 4);
  Fill(memory.data(), memory.size(), Dtype::kFloat32);
  const std::vector<std::byte> before(memory.data(), memory.data() + memory.size());
  const RopeTensor tensor = ViewOf(memory.data(), Dtype::kFloat32, {4, 1, 64});
  const absl::Status here = here_.ApplyRoPE(kLlama, IntegerRange{.count = 3}, {tensor}).status();
  EXPECT_EQ(here.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(unix_.ApplyRoPE(kLlama, IntegerRange{.count = 3}, {tensor}).status(), here);
  EXPECT_EQ(std::memcmp(memory.data(), before.data(), before.size()), 0);
}

TEST_F(ClientSharedTest, OutputsThatOverlapAreRefused) {
  const SharedMemory memory = Shared(unix_, 3 * 64 * 4 * 4);
  const auto at = [&](int64_t token) {
    return ViewOf(memory.data() + token * 64 * 4, Dtype::kFloat32, {4, 1, 64});
  };
  const IntegerRange positions{.count = 4};
  const auto status = [&](std::vector<RopeTensor> tensors) {
    return unix_.ApplyRoPE(kLlama, positions, tensors).status();
  };
  EXPECT_TRUE(status({RopeTensor(at(0), at(4))}).ok());
  EXPECT_TRUE(status({RopeTensor(at(0), at(4)), RopeTensor(at(0), at(8))}).ok());
  for (const auto& tensors : {std::vector<RopeTensor>{RopeTensor(at(0), at(1))},
                              {RopeTensor(at(1), at(0))},
                              {RopeTensor(at(0), at(4)), RopeTensor(at(8), at(7))},
                              {RopeTensor(at(0)), RopeTensor(at(0))},
                              {RopeTensor(at(0), at(4)), RopeTensor(at(4), at(8))}}) {
    const absl::Status refused = status(tensors);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("overlaps item.tensors["));
  }
}

TEST_F(ClientSharedTest, WhenItsServerEndsMemoryIsOrdinary) {
  SharedMemory memory = Shared(tcp_, 4 * 64 * 4);
  Fill(memory.data(), memory.size(), Dtype::kFloat32);
  std::vector<std::byte> expected(memory.data(), memory.data() + memory.size());
  const auto view = [](std::byte* data) { return ViewOf(data, Dtype::kFloat32, {4, 1, 64}); };
  const IntegerRange positions{.count = 4};
  ASSERT_TRUE(here_.ApplyRoPE(kLlama, positions, {view(expected.data())}).ok());
  const std::string address = server_->listeners()[0];
  server_.reset();
  ServerOptions options = Options();
  options.listen = {address};
  options.log_level = "off";
  server_ = *Server::Start(options);
  // gRPC waits a second before it connects again to where nobody was.
  absl::Status status = absl::UnknownError("");
  testing::Eventually([&] {
    status = tcp_.ApplyRoPE(kLlama, positions, {view(memory.data())}).status();
    return !absl::IsUnavailable(status);
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::memcmp(memory.data(), expected.data(), expected.size()), 0);
  Shared(tcp_, 100);  // of the new one
}

TEST_F(ClientSharedTest, WhereThereIsNoLeaseSocketMemoryIsOrdinary) {
  const SharedMemory here = *here_.AllocateShared(100);
  EXPECT_FALSE(here.shared());
  EXPECT_EQ(here.size(), 100);
  EXPECT_EQ(here_.AllocateShared(-1).status().code(), absl::StatusCode::kInvalidArgument);
  server_.reset();
  Start();
  const SharedMemory memory = *tcp_.AllocateShared(4 * 64 * 4);
  EXPECT_FALSE(memory.shared());
  Fill(memory.data(), memory.size(), Dtype::kFloat32);
  EXPECT_TRUE(tcp_.ApplyRoPE(kLlama, IntegerRange{.count = 4},
                             {ViewOf(memory.data(), Dtype::kFloat32, {4, 1, 64})})
                  .ok());
}

TEST_F(ClientSharedTest, WhatTheServerDoesNotTakeIsOrdinary) {
  server_.reset();
  ServerOptions options = Options();
  options.max_lease_bytes = 1 << 20;
  Start(options);
  EXPECT_TRUE(unix_.AllocateShared(1 << 20)->shared());
  EXPECT_FALSE(unix_.AllocateShared(int64_t{0})->shared());
  EXPECT_FALSE(unix_.AllocateShared((1 << 20) + 1)->shared());
}

// What only a caller without our client can send.
class SharedRequestTest : public ClientSharedTest {
 protected:
  grpc::Status Rotate(const std::function<void(v1::ApplyRoPERequest&)>& change) {
    v1::ApplyRoPERequest request = testing::RopeRequestOf(2);
    change(request);
    const auto stub =
        v1::PositionEmbeddingService::NewStub(testing::NewChannel(server_->listeners()[0]));
    testing::TestContext context;
    v1::ApplyRoPEResponse response;
    return stub->ApplyRoPE(&context, request, &response);
  }
  grpc::Status RotateFrom(const std::string& token, int64_t offset) {
    return Rotate([&](v1::ApplyRoPERequest& request) {
      auto* const region =
          request.mutable_item()->mutable_tensors(0)->mutable_tensor()->mutable_region();
      region->set_region(token);
      region->set_offset_bytes(offset);
      request.mutable_raw()->DeleteSubrange(0, 1);
    });
  }
};

TEST_F(SharedRequestTest, TokensCannotBeGuessed) {
  for (const std::string& token :
       {std::string(), std::string("x"), std::string(32, '0'), std::string("../../etc/passwd"),
        std::string("/dev/shm/x"), std::string(100000, 'a')}) {
    const grpc::Status status = RotateFrom(token, 0);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
    EXPECT_THAT(status.error_message(),
                HasSubstr("item.tensors[0].tensor.region.region: no such lease"));
  }
}

TEST_F(SharedRequestTest, WhereSharedMemoryIsOffItIsRefused) {
  server_.reset();
  Start();
  const grpc::Status status = RotateFrom(std::string(32, '0'), 0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              HasSubstr("item.tensors[0].tensor.region.region: shared memory is"));
}

// Calls that are given up at random moments while the server writes where they lie: afterwards
// every tensor is as it was, or rotated; and rotated if its caller was told so.
TEST_F(SharedRequestTest, ACancellationStormRotatesNothingByHalf) {
  constexpr int kCalls = 2000, kThreads = 16;
  constexpr int64_t kBytes = 96 * 2 * 64 * 4;  // more than is run at once where it arrives
  const auto info = tcp_.GetServerInfo();
  ASSERT_TRUE(info.ok());
  auto leases = client_internal::LeaseClient::Connect(info->lease_socket, info->lease_instance);
  ASSERT_TRUE(leases.ok()) << leases.status();
  SharedMemory memory = *(*leases)->Allocate(kCalls * kBytes);
  Fill(memory.data(), kBytes, Dtype::kFloat32);
  for (int i = 1; i < kCalls; ++i) std::memcpy(memory.data() + i * kBytes, memory.data(), kBytes);
  const std::vector<std::byte> before(memory.data(), memory.data() + kBytes);
  std::vector<std::byte> rotated = before;
  const std::vector<int64_t> shape = {96, 2, 64};
  ASSERT_TRUE(here_
                  .ApplyRoPE(kLlama, IntegerRange{.count = 96},
                             {ViewOf(rotated.data(), Dtype::kFloat32, shape)})
                  .ok());

  v1::ApplyRoPERequest request = testing::RopeRequestOf(96);
  v1::ApplyRoPEItem& item = *request.mutable_item();
  request.clear_raw();
  item.mutable_spec()->set_preset(kLlama.preset);
  item.mutable_spec()->set_head_dim(64);
  item.mutable_tensors()->RemoveLast();
  testing::SetShape(item.mutable_tensors(0)->mutable_tensor(), v1::DTYPE_FLOAT32, {96, 2, 64});
  item.mutable_tensors(0)->mutable_tensor()->mutable_region()->set_region(
      (*leases)->Find(memory.data(), kBytes)->token);
  const auto stub =
      v1::PositionEmbeddingService::NewStub(testing::NewChannel(server_->listeners()[0]));
  std::array<std::atomic<bool>, kCalls> told = {};
  testing::Patience patience;
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      v1::ApplyRoPERequest mine = request;
      auto* const tensor = mine.mutable_item()->mutable_tensors(0);
      for (int i = next++; i < kCalls; i = next++) {
        tensor->mutable_tensor()->mutable_region()->set_offset_bytes(i * kBytes);
        *tensor->mutable_destination() = tensor->tensor();
        testing::TestContext context;
        v1::ApplyRoPEResponse response;
        absl::Notification done;
        stub->async()->ApplyRoPE(&context, &mine, &response, [&](const grpc::Status& status) {
          told[i] = status.ok();
          EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED)
              << status.error_message();
          done.Notify();
        });
        if (testing::Patience::IsEndless(i)) {
          const absl::Time start = absl::Now();
          done.WaitForNotification();
          patience.Took(absl::Now() - start);
        } else {
          done.WaitForNotificationWithTimeout(patience.Draw(random));
          context.TryCancel();
        }
        done.WaitForNotification();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  server_.reset();  // whatever ran has ended
  int served = 0, changed = 0;
  for (int i = 0; i < kCalls; ++i) {
    const std::byte* const x = memory.data() + i * kBytes;
    const bool is_rotated = std::memcmp(x, rotated.data(), kBytes) == 0;
    EXPECT_TRUE(is_rotated || std::memcmp(x, before.data(), kBytes) == 0) << i;
    EXPECT_TRUE(is_rotated || !told[i]) << i;
    served += told[i];
    changed += is_rotated;
  }
  EXPECT_GT(served, kCalls / 100);
  EXPECT_LT(changed, kCalls);
}

}  // namespace
}  // namespace phasor
