// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/check.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/rotated_caches.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::CacheSpec;
using ::phasor::testing::RotatedLayer;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

DumpLayer Paged(int64_t pages, int64_t page_size) {
  DumpLayer layer;
  layer.layout.pages = pages;
  layer.layout.page_size = page_size;
  return layer;
}

TEST(PairTokensTest, PlacesGoThroughBlockTables) {
  const auto pairs = PairTokens(
      Paged(4, 2), Paged(3, 4),
      {.block_table = {3, 1}, .to_block_table = {2}, .first = 1, .to_first = 0, .to = 9});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(pairs->slots, ElementsAre(7, 2, 3));
  EXPECT_THAT(pairs->to_slots, ElementsAre(8, 9, 10));
  EXPECT_THAT(pairs->from, ElementsAre(0, 1, 2));
  EXPECT_THAT(pairs->to, ElementsAre(9, 10, 11));
}

TEST(PairTokensTest, CellsAreMatchedByPosition) {
  DumpLayer from, to;
  from.cells = std::make_shared<const CellPositions>(CellPositions{{4, 3, 9}, {10, 11, 13}});
  to.cells = std::make_shared<const CellPositions>(CellPositions{{0, 1, 2}, {110, 112, 113}});
  const auto pairs = PairTokens(from, to, {});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(pairs->slots, ElementsAre(4, 9));
  EXPECT_THAT(pairs->to_slots, ElementsAre(0, 2));
  EXPECT_THAT(pairs->from, ElementsAre(10, 13));
  EXPECT_THAT(pairs->to, ElementsAre(110, 113));
  EXPECT_THAT(PairTokens(from, to, {.count = 2})->slots, ElementsAre(4));
}

TEST(PairTokensTest, CellsAreOfBothCachesAndHaveNoPlaces) {
  DumpLayer cells = Paged(1, 4);
  cells.cells = std::make_shared<const CellPositions>(CellPositions{{0}, {10}});
  EXPECT_THAT(PairTokens(cells, Paged(1, 4), {.to = 5}).status(),
              StatusIs(testing::kInvalid, HasSubstr("--to-input: only one of the caches")));
  for (const TokenOptions& options :
       {TokenOptions{.first = 1}, TokenOptions{.to_first = 0}, TokenOptions{.block_table = {0}}}) {
    EXPECT_THAT(PairTokens(cells, cells, options).status(),
                StatusIs(testing::kInvalid, HasSubstr("--first: a place or pages are given")));
  }
}

TEST(PairTokensTest, MistakesAreNamed) {
  const DumpLayer layer = Paged(2, 2);
  const auto status = [&](const TokenOptions& options) {
    return PairTokens(layer, layer, options).status();
  };
  EXPECT_THAT(status({}),
              StatusIs(testing::kInvalid, HasSubstr("--to: 0, as --from; must differ")));
  EXPECT_THAT(status({.to = 5, .count = 5}), StatusIs(testing::kInvalid, HasSubstr("--count: 5")));
  EXPECT_THAT(status({.first = 4, .to = 5}), StatusIs(testing::kInvalid, HasSubstr("no token")));
  EXPECT_THAT(status({.first = -1, .to = 5}), StatusIs(testing::kInvalid, HasSubstr("no token")));
  EXPECT_THAT(status({.block_table = {2}, .to = 5}),
              StatusIs(testing::kInvalid, HasSubstr("no token")));
  EXPECT_THAT(status({.to = int64_t{1} << 60}), StatusIs(testing::kInvalid, HasSubstr("2^48")));
}

TEST(GateToleranceTest, GrowsWithPositionsAndIsThatOfTheCode) {
  TokenPairs near{.from = {0}, .to = {-5}}, far{.from = {0}, .to = {1000000}};
  EXPECT_NEAR(GateTolerance(KeyCode::kFloat32, near), 1e-3, 1e-6);
  EXPECT_NEAR(GateTolerance(KeyCode::kFloat32, far), 0.101, 1e-6);
  EXPECT_NEAR(GateTolerance(KeyCode::kBFloat16, near), 0.03, 1e-6);
}

TEST(CompareLayerTest, TheRightSpecificationFitsAndChangesDoNot) {
  const testing::TempDir dir;
  const auto client = Client::Connect("inproc:");
  const LayerCase right = RotatedLayer(dir, 0, 5e5, CacheSpec(5e5));
  const auto outcome = CompareLayer(*client, right, kAll);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->fits());
  EXPECT_EQ(outcome->rows, testing::kCacheTokens * testing::kCacheHeads);
  EXPECT_LT(outcome->difference.relative_rms(), 1e-6);
  EXPECT_EQ(CompareLayer(*client, right, 3)->rows, 3 * testing::kCacheHeads);
  const auto fits = [&](auto change) {
    LayerCase layer = right;
    change(layer);
    return CompareLayer(*client, layer, kAll)->fits();
  };
  EXPECT_FALSE(fits([](LayerCase& layer) { layer.spec->rope_theta = 1e4; }));
  EXPECT_FALSE(fits([](LayerCase& layer) { layer.spec.reset(); }));
  EXPECT_FALSE(fits([](LayerCase& layer) { layer.amplitude = 1.1; }));
  EXPECT_FALSE(fits([](LayerCase& layer) { layer.distance = 1; }));
  EXPECT_FALSE(fits([](LayerCase& layer) { layer.reversed = true; }));
  EXPECT_FALSE(fits([](LayerCase& layer) { layer.row_shift = 1; }));
}

TEST(CompareLayerTest, PlacesOutsideTheFileAreRefused) {
  const testing::TempDir dir;
  const auto client = Client::Connect("inproc:");
  const LayerCase right = RotatedLayer(dir, 0, 5e5, CacheSpec(5e5));
  const auto status = [&](auto change) {
    LayerCase layer = right;
    change(layer.to);
    return CompareLayer(*client, layer, kAll).status();
  };
  EXPECT_THAT(status([](DumpLayer& side) { side.offset_bytes = int64_t{1} << 62; }),
              StatusIs(testing::kInvalid, HasSubstr("layer 0.offset_bytes: ")));
  EXPECT_THAT(status([](DumpLayer& side) { side.offset_bytes = -1; }),
              StatusIs(testing::kInvalid, HasSubstr("layer 0.offset_bytes: -1")));
  EXPECT_THAT(status([](DumpLayer& side) { side.index = 1; }),
              StatusIs(testing::kInvalid, HasSubstr("layer 0.index: 1")));
  EXPECT_THAT(status([](DumpLayer& side) {
                side.index = 3;
                side.layout.layers = 4;
              }),
              StatusIs(testing::kInvalid, HasSubstr("begins beyond its file")));
  EXPECT_THAT(status([](DumpLayer& side) { side.layout.pages = 2; }),
              StatusIs(testing::kInvalid, HasSubstr("item.")));
}

}  // namespace
}  // namespace phasor::cli
