// SPDX-License-Identifier: Apache-2.0
// The bytes that a move writes, range by range.
#include "kernels/request/written_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/plan/plan.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Pair;
using testing::PresetSpec;

constexpr int64_t kRowBytes = 64 * 2;  // 2 heads of 64 lanes in bfloat16

// Two layers of 4 pages of 2 slots; layer 1 has no rotation. Slots 1, 2 and 3 go to 5, 6 and 7.
MoveRequest TwoLayers() {
  MoveRequest request;
  constexpr int64_t kLayer = 8 * 2 * kRowBytes;
  request.pools = {2 * kLayer, 8 * 4, 2 * kLayer};
  request.layouts = {{.name = "nhd", .pages = 4, .page_size = 2, .heads = 2, .head_dim = 64}};
  request.specs = {{.spec = PresetSpec("rope-half-split")}};
  request.layers = {{.spec = 0, .to_place = KeyPlace{2, 0}},
                    {.place = {0, kLayer}, .to_place = KeyPlace{2, kLayer}}};
  request.groups = {{.slots = {.slots = {1, 2, 3},
                               .to_slots = {5, 7, 6},
                               .from_positions = {9, 8, 7},
                               .positions = {1, 2, 3}},
                     .slot_positions = KeyPlace{1, 0}}};
  return request;
}

std::vector<std::pair<int64_t, int64_t>> WrittenOf(const MoveRequest& request, size_t pool) {
  const auto move = PrepareMove(request, CompilePlan, "item");
  EXPECT_THAT(move, IsOk());
  std::vector<std::pair<int64_t, int64_t>> ranges;
  ForEachWritten(*move, pool,
                 [&](int64_t begin, int64_t bytes) { ranges.emplace_back(begin, bytes); });
  return ranges;
}

TEST(WrittenBytesTest, ACopyWritesRowsOfAllLayersAndPositions) {
  const int64_t slot = 2 * kRowBytes, layer = 8 * slot;
  EXPECT_THAT(WrittenOf(TwoLayers(), 0), IsEmpty());
  EXPECT_THAT(WrittenOf(TwoLayers(), 1), ElementsAre(Pair(20, 4), Pair(28, 4), Pair(24, 4)));
  EXPECT_THAT(WrittenOf(TwoLayers(), 2),
              ElementsAre(Pair(5 * slot, slot), Pair(7 * slot, slot), Pair(6 * slot, slot),
                          Pair(layer + 5 * slot, slot), Pair(layer + 7 * slot, slot),
                          Pair(layer + 6 * slot, slot)));
}

TEST(WrittenBytesTest, AMoveWritesNoLayerWithoutARotation) {
  MoveRequest request = TwoLayers();
  request.mode = MoveMode::kMove;
  for (KeyLayer& layer : request.layers) layer.to_place.reset();
  request.groups[0].slots.to_slots.clear();
  EXPECT_THAT(WrittenOf(request, 0), ElementsAre(Pair(2 * kRowBytes, 3 * 2 * kRowBytes)));
  EXPECT_THAT(WrittenOf(request, 1), ElementsAre(Pair(4, 12)));
  request.mode = MoveMode::kCompare;
  EXPECT_THAT(WrittenOf(request, 0), IsEmpty());
  EXPECT_THAT(WrittenOf(request, 1), IsEmpty());
}

TEST(WrittenBytesTest, HeadsWithoutTheirNeighboursAndScalesAreRangesOfTheirOwn) {
  MoveRequest request = TwoLayers();
  request.layers.resize(1);
  request.layouts[0].code = KeyCode::kInt8;
  request.layouts[0].head_bytes = 100;
  request.layouts[0].slot_bytes = 200;
  request.layouts[0].page_bytes = 400;
  request.layouts[0].scales = KeyScales{3000, 16, 8, 4};
  request.groups[0].slots = {
      .slots = {1}, .to_slots = {4}, .from_positions = {1}, .positions = {2}};
  EXPECT_THAT(WrittenOf(request, 2),
              ElementsAre(Pair(800, 64), Pair(900, 64), Pair(3000 + 2 * 16, 8)));
}

TEST(WrittenBytesTest, RowsWithLanesApartAreNotWhole) {
  MoveRequest request = TwoLayers();
  auto move = PrepareMove(request, CompilePlan, "item");
  ASSERT_THAT(move, IsOk());
  EXPECT_TRUE(WritesWholeRows(*move, 2));
  request.layouts[0].name = "vllm-paged-x";
  move = PrepareMove(request, CompilePlan, "item");
  ASSERT_THAT(move, IsOk());
  EXPECT_FALSE(WritesWholeRows(*move, 2));
  EXPECT_TRUE(WritesWholeRows(*move, 0)) << "only read";
}

}  // namespace
}  // namespace phasor
