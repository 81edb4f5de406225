// SPDX-License-Identifier: Apache-2.0
// A move whose client is killed, cancels or runs out of time in the middle: it ends between its
// pieces, changes nothing that it does not name, and a repeated call does what is left.
#include <signal.h>
#include <stdlib.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/shared/lease_client.h"
#include "gmock/gmock.h"
#include "kernels/backends.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "proto/convert_move.h"
#include "tests/e2e/shared_server.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/eventually.h"
#include "tests/support/running_server.h"
#include "tests/support/status_matchers.h"
#include "tests/support/subprocess.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kCachePages = 40, kCachePageSize = 16, kCacheSlots = kCachePages * kCachePageSize;
constexpr int64_t kMovedSlots = kCacheSlots / 2;              // of the slots are moved
constexpr int64_t kLongLayers = 8, kSlotBytes = 8 * 128 * 2;  // a layer's, in bfloat16
constexpr int64_t kLongLayerBytes = kCacheSlots * kSlotBytes;
constexpr int64_t kKeysBytes = kLongLayers * kLongLayerBytes;
constexpr int64_t kGuard = 4096;  // before, between and after the pools
constexpr int64_t kPositionsAt = kGuard + kKeysBytes + kGuard;
constexpr int64_t kAllBytes = kPositionsAt + 4 * kCacheSlots + kGuard;
constexpr int kPiecesBeforeTheEnd = 3;

// Moves the tokens of every second page in place.
MoveRequest HalfMove() {
  MoveRequest request;
  request.mode = MoveMode::kMove;
  request.pools = {kKeysBytes, 4 * kCacheSlots};
  request.layouts = {{.name = "nhd",
                      .pages = kCachePages,
                      .page_size = kCachePageSize,
                      .heads = 8,
                      .head_dim = 128}};
  request.specs = {{.spec = {.preset = "llama-2", .head_dim = 128}}};
  for (int64_t i = 0; i < kLongLayers; ++i) {
    request.layers.push_back({.spec = 0, .place = {0, i * kLongLayerBytes}});
  }
  KeyRun run{.count = kMovedSlots, .from = 4000, .to = 17};
  for (int64_t page = 0; page < kCachePages; page += 2) run.block_table.push_back(page);
  request.groups = {{.runs = {run}, .slot_positions = KeyPlace{1, 0}}};
  return request;
}

// The slot of token `t`.
int64_t SlotOf(int64_t t) { return t / kCachePageSize * 2 * kCachePageSize + t % kCachePageSize; }

v1::MoveKeysRequest OnLease(const std::string& token) {
  v1::MoveKeysRequest wire;
  *wire.mutable_item() = ToWire(HalfMove());
  int i = 0;
  for (const int64_t at : {kGuard, kPositionsAt}) {
    v1::RegionRef* const region = wire.mutable_item()->mutable_pools(i++)->mutable_region();
    region->set_region(token);
    region->set_offset_bytes(at);
  }
  return wire;
}

uint32_t* PositionsIn(std::vector<std::byte>& memory) {
  return reinterpret_cast<uint32_t*>(memory.data() + kPositionsAt);
}

// Begins three pieces of a move, says so, and goes on once the server knows that the caller left.
class HeldBackend final : public testing::BorrowedBackend {
 public:
  using BorrowedBackend::BorrowedBackend;
  void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) override {
    ASSERT_EQ(jobs.size(), 1u);
    MoveJob job = std::get<MoveJob>(jobs[0]);
    Stop* const callers = job.stop;
    int pieces = 0;
    Stop stop([&] {
      if (pieces++ < kPiecesBeforeTheEnd) {
        EXPECT_TRUE(callers->MayBegin());
        return absl::OkStatus();
      }
      if (!reached_.HasBeenNotified()) reached_.Notify();
      EXPECT_TRUE(testing::Eventually([&] { return !callers->MayBegin(); }));
      return callers->why();
    });
    job.stop = &stop;
    const Job held[] = {job};
    BorrowedBackend::RunEach(held, results);
    ended_.Notify();
  }
  void WaitForTheMiddle() { reached_.WaitForNotification(); }
  void WaitForTheEnd() { ended_.WaitForNotification(); }

 private:
  absl::Notification reached_, ended_;
};

class MoveCancelTest : public ClientServerTest {
 protected:
  void SetUp() override {
    auto one_thread = std::make_unique<HeldBackend>(cpu_.get());
    backend_ = one_thread.get();
    Start(Options(), std::move(one_thread));
    auto leases = client_internal::LeaseClient::Connect(Options().lease_socket,
                                                        unix_.GetServerInfo()->lease_instance);
    ASSERT_TRUE(leases.ok()) << leases.status();
    leases_ = *std::move(leases);
    memory_ = *leases_->Allocate(kAllBytes);
    before_.resize(kAllBytes);
    uint32_t state = 1;
    for (std::byte& byte : before_) {  // the bits of moderate numbers
      state = state * 1664525u + 1013904223u;
      byte = static_cast<std::byte>((state >> 24 & 0x83) | 0x3C);
    }
    for (int64_t t = 0; t < kMovedSlots; ++t)
      PositionsIn(before_)[SlotOf(t)] = static_cast<uint32_t>(4000 + t);
    std::memcpy(memory_.data(), before_.data(), before_.size());
    const auto leased = leases_->Find(memory_.data(), kAllBytes);
    ASSERT_TRUE(leased.has_value());
    ASSERT_EQ(leased->offset, 0);
    token_ = leased->token;
  }
  void TearDown() override { server_.reset(); }  // before what its backend runs on

  // Moves what is left in `memory`, in process.
  absl::StatusOr<MoveResult> MoveHere(std::byte* memory) const {
    const MoveRequest request = HalfMove();
    MoveCall call{
        .pools = {{memory + kGuard, kKeysBytes}, {memory + kPositionsAt, 4 * kCacheSlots}},
        .layouts = request.layouts,
        .specs = request.specs,
        .layers = request.layers,
        .groups = request.groups,
        .mode = request.mode};
    return here_.MoveKeys(std::move(call));
  }

  // Three pieces of tokens are moved in all layers, nothing else has changed, and what is left can
  // be moved.
  void ExpectThreePieces() {
    backend_->WaitForTheEnd();
    std::vector<std::byte> after = before_;
    ASSERT_TRUE(MoveHere(after.data()).ok());
    std::vector<std::byte> expected = before_;
    int64_t done = 0;
    std::vector<std::byte> now(memory_.data(), memory_.data() + kAllBytes);
    for (int64_t t = 0; t < kMovedSlots; ++t) {
      const int64_t slot = SlotOf(t);
      if (PositionsIn(now)[slot] != static_cast<uint32_t>(17 + t)) continue;
      ++done;
      PositionsIn(expected)[slot] = static_cast<uint32_t>(17 + t);
      for (int64_t layer = 0; layer < kLongLayers; ++layer) {
        const int64_t at = kGuard + layer * kLongLayerBytes + slot * kSlotBytes;
        std::memcpy(expected.data() + at, after.data() + at, kSlotBytes);
      }
    }
    EXPECT_EQ(done, kPiecesBeforeTheEnd * 16);
    EXPECT_EQ(now == expected, true);
    const auto left = MoveHere(memory_.data());
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_EQ(left->tokens, kMovedSlots - done);
    EXPECT_EQ(std::memcmp(memory_.data(), after.data(), after.size()), 0);
  }

  const std::unique_ptr<Backend> cpu_ = *MakeBackend({.name = "cpu", .threads = 1});
  HeldBackend* backend_ = nullptr;
  std::shared_ptr<client_internal::LeaseClient> leases_;
  SharedMemory memory_;
  std::string token_;
  std::vector<std::byte> before_;
};

TEST_F(MoveCancelTest, ACancelledCallEndsBeforeItsNextPiece) {
  const auto stub =
      v1::PositionEmbeddingService::NewStub(testing::NewChannel(server_->listeners()[0]));
  grpc::ClientContext context;
  std::thread caller([&] {
    v1::MoveKeysResponse response;
    const grpc::Status status = stub->MoveKeys(&context, OnLease(token_), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  });
  backend_->WaitForTheMiddle();
  context.TryCancel();
  caller.join();
  ExpectThreePieces();
}

TEST_F(MoveCancelTest, AStreamThatIsCancelledEndsItsMoves) {
  const auto stub =
      v1::PositionEmbeddingService::NewStub(testing::NewChannel(server_->listeners()[0]));
  grpc::ClientContext context;
  const auto stream = stub->StreamMoveKeys(&context);
  v1::StreamMoveKeysRequest request;
  *request.mutable_item() = OnLease(token_).item();
  ASSERT_TRUE(stream->Write(request));
  backend_->WaitForTheMiddle();
  context.TryCancel();
  ExpectThreePieces();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// The client that is killed; runs in a process of its own.
TEST(MoveCancelClient, DISABLED_Moves) {
  const char* const address = getenv("PHASOR_MOVE_AT");
  const char* const token = getenv("PHASOR_MOVE_TOKEN");
  ASSERT_TRUE(address != nullptr && token != nullptr);
  const auto stub = v1::PositionEmbeddingService::NewStub(testing::NewChannel(address));
  grpc::ClientContext context;
  v1::MoveKeysResponse response;
  (void)stub->MoveKeys(&context, OnLease(token), &response);
}

TEST_F(MoveCancelTest, AClientThatIsKilledLeavesWholeTokens) {
  ASSERT_EQ(setenv("PHASOR_MOVE_AT", server_->listeners()[0].c_str(), 1), 0);
  ASSERT_EQ(setenv("PHASOR_MOVE_TOKEN", token_.c_str(), 1), 0);
  testing::Subprocess client({"/proc/self/exe", "--gtest_filter=MoveCancelClient.*",
                              "--gtest_also_run_disabled_tests", "--gtest_brief=1"});
  backend_->WaitForTheMiddle();
  client.Signal(SIGKILL);
  EXPECT_EQ(client.Wait(), 128 + SIGKILL);
  ExpectThreePieces();
}

}  // namespace
}  // namespace phasor
