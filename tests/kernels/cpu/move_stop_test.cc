// SPDX-License-Identifier: Apache-2.0
// Moves and comparisons of cached keys that end in the middle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/request/slot_positions.h"
#include "tests/support/backends.h"
#include "tests/support/key_cache.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::FillRows;
using testing::IsOk;
using testing::Pool;

constexpr int64_t kLanes = 128;

std::unique_ptr<Backend> BackendOf(int threads) {
  return cpu::MakeCpuBackend({cpu::RunnableTargets().front(), threads});
}

// 640 tokens of 8 layers, so that there are dozens of pieces. Pool 1 has the slots' positions.
MoveRequest LongMove() {
  constexpr int64_t kPages = 40, kLayerBytes = kPages * 16 * 8 * kLanes * 2;
  MoveRequest request;
  request.mode = MoveMode::kMove;
  request.pools = {8 * kLayerBytes, kPages * 16 * 4};
  request.layouts = {
      {.name = "nhd", .pages = kPages, .page_size = 16, .heads = 8, .head_dim = kLanes}};
  Spec spec;
  spec.preset = "rope-half-split";
  request.specs = {{.spec = std::move(spec)}};
  for (int64_t i = 0; i < 8; ++i)
    request.layers.push_back({.spec = 0, .place = {0, i * kLayerBytes}});
  KeyRun run{.count = kPages * 16, .from = 5000, .to = 17};
  for (int64_t p = 0; p < kPages; ++p) run.block_table.push_back((7 * p + 3) % kPages);
  request.groups = {{.runs = {run}, .slot_positions = KeyPlace{1, 0}}};
  return request;
}

// Runs what is left of a move in place. Only `pieces` pieces may begin.
absl::Status RunPieces(const MoveRequest& request, Backend& backend, int pieces,
                       std::vector<Pool>* pools, int64_t* tokens = nullptr) {
  auto move = PrepareMove(request, CompilePlan, "item");
  if (!move.ok()) return move.status();
  std::vector<std::byte*> memory;
  for (Pool& pool : *pools) memory.push_back(pool.data());
  if (absl::Status read = ReadSlotPositions(memory, "item", &*move); !read.ok()) return read;
  if (tokens != nullptr) *tokens = move->tokens;
  std::atomic<int> left = pieces;
  Stop stop([&] { return --left >= 0 ? absl::OkStatus() : absl::CancelledError("enough"); });
  MoveJob job = MakeMoveJob(*move, memory, nullptr);
  job.stop = &stop;
  const Job jobs[] = {job};
  if (absl::Status ran = backend.Run(jobs); !ran.ok()) return ran;
  EXPECT_EQ(stop.begun(), pieces > 0);
  return stop.why();
}

TEST(MoveStopTest, AStoppedMoveHasWholeTokensAndGoesOnWhereItEnded) {
  const MoveRequest request = LongMove();
  std::vector<Pool> before = {Pool(static_cast<size_t>(request.pools[0])),
                              Pool(static_cast<size_t>(request.pools[1]))};
  const KeyForm form = ResolveKeyLayout(request.layouts[0], "layout")->keys;
  for (const KeyLayer& layer : request.layers) {
    FillRows(form, layer.place.offset_bytes, 3, &before[0]);
  }
  const auto move = PrepareMove(request, CompilePlan, "item");
  ASSERT_THAT(move, IsOk());
  const MoveTokens& tokens = move->groups[0];
  const auto positions = [](std::vector<Pool>& pools) {
    return reinterpret_cast<uint32_t*>(pools[1].data());
  };
  for (size_t t = 0; t < tokens.to_slots.size(); ++t) {
    positions(before)[tokens.to_slots[t]] = static_cast<uint32_t>(tokens.from_positions[t]);
  }
  std::vector<Pool> after = before;
  ASSERT_THAT(RunPieces(request, *BackendOf(1), 1 << 20, &after), IsOk());
  for (const int threads : {1, 4}) {
    const auto backend = BackendOf(threads);
    std::vector<Pool> pools = before;
    EXPECT_THAT(RunPieces(request, *backend, 0, &pools),
                testing::StatusIs(absl::StatusCode::kCancelled, "enough"));
    EXPECT_EQ(pools == before, true);
    EXPECT_EQ(RunPieces(request, *backend, 5, &pools).code(), absl::StatusCode::kCancelled);
    // Every token is old or new in all layers, as its position says.
    int64_t done = 0;
    for (size_t t = 0; t < tokens.to_slots.size(); ++t) {
      const int64_t slot = tokens.to_slots[t];
      const bool moved = positions(pools)[slot] == static_cast<uint32_t>(tokens.to_positions[t]);
      done += moved;
      for (const MovePlane& plane : move->planes) {
        const auto at = static_cast<size_t>(plane.offset + form.RowOf(slot));
        const auto row = [&](const std::vector<Pool>& of) {
          return std::string(reinterpret_cast<const char*>(of[0].data() + at),
                             static_cast<size_t>(form.slot_bytes));
        };
        ASSERT_EQ(row(pools), row(moved ? after : before)) << threads << " threads, token " << t;
      }
    }
    EXPECT_EQ(done, 5 * 16);
    int64_t left = 0;
    ASSERT_THAT(RunPieces(request, *backend, 1 << 20, &pools, &left), IsOk());
    EXPECT_EQ(left, tokens.count() - done);
    EXPECT_EQ(pools == after, true);
  }
}

TEST(MoveStopTest, AStoppedComparisonEndsBetweenTiles) {
  MoveRequest request = LongMove();
  request.mode = MoveMode::kCompare;
  request.groups[0].slot_positions.reset();
  std::vector<Pool> pools = {Pool(static_cast<size_t>(request.pools[0])), Pool(8)};
  request.pools[1] = 8;
  const auto move = PrepareMove(request, CompilePlan, "item");
  ASSERT_THAT(move, IsOk());
  std::vector<std::byte> report(move->layers * sizeof(KeyReport));
  int asked = 0;
  Stop stop([&] { return ++asked < 4 ? absl::OkStatus() : absl::CancelledError("enough"); });
  MoveJob job =
      MakeMoveJob(*move, std::vector<std::byte*>{pools[0].data(), pools[1].data()}, report.data());
  job.stop = &stop;
  const Job jobs[] = {job};
  ASSERT_THAT(BackendOf(1)->Run(jobs), IsOk());
  EXPECT_EQ(stop.why().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 4) << "it ends at once";
}

}  // namespace
}  // namespace phasor
