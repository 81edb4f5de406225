// SPDX-License-Identifier: Apache-2.0
// Checks of whole moves: what they resolve to, and every request that must be refused. Random
// requests are refused or leave every byte alone that they do not name.
#include "kernels/request/move_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/plan/plan.h"
#include "kernels/request/move_tokens.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::PresetSpec;
using testing::StatusIs;

constexpr int64_t kLayerBytes = 8 * 4 * 2 * 64 * 2;  // 8 pages of 4 slots, 2 heads of 64 lanes

// Two layers of one pool and one group, copied from pages 0 and 1 to 2 and 3.
MoveRequest Valid() {
  MoveRequest request;
  request.pools = {2 * kLayerBytes};
  request.layouts = {{.name = "nhd",
                      .code = KeyCode::kBFloat16,
                      .pages = 8,
                      .page_size = 4,
                      .heads = 2,
                      .head_dim = 64}};
  request.specs = {{.spec = PresetSpec("rope-half-split")}};
  request.layers = {{.spec = 0}, {.spec = 0, .place = {0, kLayerBytes}}};
  request.groups = {
      {.runs = {
           {.block_table = {0, 1}, .count = 8, .from = 0, .to = 100, .to_block_table = {2, 3}}}}};
  return request;
}

absl::StatusOr<PreparedMove> Prepare(const MoveRequest& request) {
  return PrepareMove(request, CompilePlan, "item");
}

template <typename Change>
void ExpectRefused(const std::string& message, Change change) {
  MoveRequest request = Valid();
  change(request);
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr(message))) << message;
}

TEST(MoveKeysTest, AValidMoveKnowsItsBytesAndItsPools) {
  const auto move = Prepare(Valid());
  ASSERT_THAT(move, IsOk());
  EXPECT_EQ(move->tokens, 8);
  EXPECT_EQ(move->moved_bytes, 2 * 8 * 2 * 128);
  EXPECT_TRUE(move->pools[0].written);
  EXPECT_EQ(move->planes.size(), 2u);
  EXPECT_EQ(move->planes[0].plan->spec.head_dim, 64);
  EXPECT_EQ(move->specs[0].fingerprint, move->planes[0].plan->fingerprint);
}

TEST(MoveKeysTest, ComparingWritesNoPool) {
  MoveRequest request = Valid();
  request.mode = MoveMode::kCompare;
  const auto move = Prepare(request);
  ASSERT_THAT(move, IsOk());
  EXPECT_FALSE(move->pools[0].written);
}

TEST(MoveKeysTest, SharedPagesAreSourcesOfACopyButNotOfAMove) {
  MoveRequest request = Valid();
  request.groups[0].runs.push_back(
      {.block_table = {0}, .count = 4, .from = 0, .to = 7, .to_block_table = {5}});
  EXPECT_THAT(Prepare(request), IsOk());
  request.mode = MoveMode::kMove;
  for (KeyRun& run : request.groups[0].runs) run.to_block_table.clear();
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("two tokens go to slot 0")));
}

TEST(MoveKeysTest, GroupsMayShareATensorPageByPage) {
  // Two layers of two groups with one tensor, as in hybrid models; other heads, equal pages.
  MoveRequest request = Valid();
  request.layouts.push_back(request.layouts[0]);
  request.layouts[1].heads = 1;
  request.layouts[1].page_bytes = kLayerBytes / 8;
  request.layers[1] = {.layout = 1, .spec = 0, .group = 1};
  request.groups.push_back(
      {.runs = {{.block_table = {4}, .count = 4, .from = 0, .to = 9, .to_block_table = {5}}}});
  EXPECT_THAT(Prepare(request), IsOk());
  request.groups[1].runs[0].to_block_table = {1};  // a source of the other group
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("rows overlap those of layers[")));
}

TEST(MoveKeysTest, LayersInsideAPageDoNotOverlap) {
  MoveRequest request = Valid();
  request.layouts[0].name = "vllm-blnhc";
  request.layouts[0].layers = 3;
  request.pools = {8 * 3 * 4 * 2 * 2 * 128};
  request.layers = {{.spec = 0, .layer = 0}, {.spec = 0, .layer = 2}};
  EXPECT_THAT(Prepare(request), IsOk());
  request.layers[1].layer = 0;
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("rows overlap")));
}

// transformers stores DeepSeek's pairs as halves, the engines with rows of MLA as neighbours. Which
// one a row has cannot be seen, so the spec of transformers must say it.
TEST(MoveKeysTest, RowsOfMlaStorePairsWhereTheyWereRead) {
  MoveRequest request = Valid();
  request.layouts[0].name = "mla-576";
  request.layouts[0].heads = 1;
  request.pools = {2 * 32 * 1152};
  request.layers[1].place.offset_bytes = 32 * 1152;
  const Spec deepseek = {.config_json = R"({"model_type": "deepseek_v3"})", .head_dim = 64};
  request.specs[0].spec = deepseek;
  EXPECT_THAT(Prepare(request),
              StatusIs(kInvalid, HasSubstr("item.layouts[0].name: mla-576, whose engines leave "
                                           "pairs where they are, but item.layers[0]'s spec reads "
                                           "INTERLEAVED and stores HALF_SPLIT; must")));
  request.specs[0].from_spec = request.specs[0].spec;
  for (const Pairing pairing : {Pairing::kInterleaved, Pairing::kHalfSplit}) {
    request.specs[0].spec.pairing = pairing;
    EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("item.layouts[0].name")));
    MoveRequest said = request;
    said.specs[0].from_spec->pairing = pairing;
    EXPECT_THAT(Prepare(said), IsOk());
  }
  request = Valid();  // rows of heads are those of transformers, too
  request.specs[0].spec = deepseek;
  EXPECT_THAT(Prepare(request), IsOk());
}

TEST(MoveKeysTest, WrongMovesAreRefusedWithTheirField) {
  ExpectRefused("item.pools: 0 entries", [](auto& r) { r.pools.clear(); });
  ExpectRefused("item.pools[0]: 0 bytes", [](auto& r) { r.pools[0] = 0; });
  ExpectRefused("item.layers: 513 entries", [](auto& r) { r.layers.resize(513); });
  ExpectRefused("item.layouts[0].pages: 0", [](auto& r) { r.layouts[0].pages = 0; });
  ExpectRefused("item.layers[1].spec: 3; must be an index of specs",
                [](auto& r) { r.layers[1].spec = 3; });
  ExpectRefused("item.layers[1].layout: -1", [](auto& r) { r.layers[1].layout = -1; });
  ExpectRefused("item.layers[0].group: 1", [](auto& r) { r.layers[0].group = 1; });
  ExpectRefused("item.layers[0].layer: 1", [](auto& r) { r.layers[0].layer = 1; });
  ExpectRefused("item.layers[0].place.pool: 1", [](auto& r) { r.layers[0].place.pool = 1; });
  ExpectRefused("item.layers[0].place.offset_bytes: -1",
                [](auto& r) { r.layers[0].place.offset_bytes = -1; });
  ExpectRefused("item.layers[1]: rows in bytes",
                [](auto& r) { r.layers[1].place.offset_bytes += 2; });
  ExpectRefused("item.layers[1]: rows overlap those of layers[0]",
                [](auto& r) { r.layers[1].place.offset_bytes = 0; });
  ExpectRefused("item.layers[0]: rows overlap; must lie side by side",
                [](auto& r) { r.layouts[0].slot_bytes = 128; });
  ExpectRefused("item.specs[1]: no layer has it", [](auto& r) { r.specs.push_back(r.specs[0]); });
  ExpectRefused("item.groups[1]: no layer has it", [](auto& r) { r.groups.emplace_back(); });
  ExpectRefused("item.specs[0].spec.kind: ENCODING",
                [](auto& r) { r.specs[0].spec = PresetSpec("transformer"); });
  ExpectRefused("item.layouts[0].head_dim: 576; must be that of item.layers[0]'s spec (64)",
                [](auto& r) {
                  r.layouts[0].head_dim = 576;
                  r.layouts[0].heads = 1;
                  r.layouts[0].pages = 1;
                  r.specs[0].spec.head_dim = 64;
                });
  ExpectRefused("item.specs[0].from_spec: rotates lanes [0, 32)", [](auto& r) {
    r.specs[0].from_spec = PresetSpec("rope-half-split");
    r.specs[0].from_spec->rotary_dim = 32;
  });
  ExpectRefused("a token's destination is read as a source", [](auto& r) {
    r.groups[0].runs[0].to_block_table = {1, 4};
  });
  ExpectRefused("item.layers[0].to_place: set for MOVE", [](auto& r) {
    r.mode = MoveMode::kMove;
    r.layers[0].to_place = KeyPlace{};
  });
  ExpectRefused("item.groups[0]: 40 tokens; must be at most the destination's slots (32)",
                [](auto& r) {
                  r.groups[0].runs[0].block_table.assign(10, 0);
                  r.groups[0].runs[0].to_block_table.assign(10, 2);
                  r.groups[0].runs[0].count = 40;
                });
  ExpectRefused("item.tolerance: -1", [](auto& r) { r.tolerance = -1; });
  ExpectRefused(
      "item.groups[0].slots.positions: 3 axes; must be 1 or those of the spec", [](auto& r) {
        r.groups[0].runs.clear();
        r.groups[0].slots = {
            .slots = {0}, .to_slots = {9}, .from_positions = {1, 2, 3}, .positions = {1, 2, 3}};
      });
  ExpectRefused("item.layers[0].to_layout: its rows differ", [](auto& r) {
    r.layouts.push_back(r.layouts[0]);
    r.layouts[1].code = KeyCode::kFloat16;
    r.layers[0].to_layout = 1;
  });
}

// Nothing else bounds them: they may name one slot again and again.
TEST(MoveKeysTest, AComparisonHasSoManyTokens) {
  MoveRequest request = Valid();
  request.mode = MoveMode::kCompare;
  KeyRun& run = request.groups[0].runs[0];
  run.count = kMaxMoveTokens;
  run.block_table.assign(kMaxMoveTokens / 4, 0);
  run.to_block_table = run.block_table;
  EXPECT_THAT(Prepare(request), IsOk());
  request.groups.push_back(request.groups[0]);
  request.groups[1].runs[0].count = 1;
  request.layers[1].group = 1;
  EXPECT_THAT(Prepare(request),
              StatusIs(kInvalid, HasSubstr("item.groups: more than 1048576 tokens")));
  request.groups[0].runs.push_back(request.groups[1].runs[0]);
  EXPECT_THAT(Prepare(request),
              StatusIs(kInvalid, HasSubstr("item.groups[0]: 1048577 tokens; must be at most")));
}

// Each distance times its extent is a multiple of 2^64 but for a few bytes: without an eye on that,
// all rows would seem to lie in the pool.
TEST(MoveKeysTest, DistancesThatDoNotFitInto64BitsAreRefused) {
  constexpr int64_t kMany = int64_t{1} << 40, kFar = int64_t{1} << 24;
  constexpr auto kTooLarge = "item.layouts[0]: 2^50 bytes or more; must be less";
  const auto expect_refused = [](const char* what, const char* message, auto change) {
    MoveRequest request = Valid();
    request.layouts[0] = {.code = KeyCode::kFloat8E4M3, .pages = 1, .heads = 1, .head_dim = 2};
    request.specs.clear();
    request.layers = {{}};
    request.pools = {1 << 16};
    request.groups[0].runs = {{.block_table = {0}, .count = 1, .to_block_table = {0}}};
    change(request.layouts[0]);
    EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr(message))) << what;
  };
  expect_refused("page_bytes", kTooLarge, [=](auto& l) { l.pages = kMany, l.page_bytes = kFar; });
  expect_refused("slot_bytes", kTooLarge,
                 [=](auto& l) { l.page_size = kMany, l.slot_bytes = kFar; });
  expect_refused("head_bytes", kTooLarge, [=](auto& l) { l.heads = kMany, l.head_bytes = kFar; });
  expect_refused("scales", "scales in bytes", [](auto& l) {
    l.pages = 1 << 14, l.page_bytes = 2;  // rows that fit
    l.scales = KeyScales{1 << 15, int64_t{1} << 50, 4, 4};
  });
}

TEST(MoveKeysTest, FingerprintsArePinned) {
  MoveRequest request = Valid();
  const auto move = Prepare(request);
  ASSERT_THAT(move, IsOk());
  request.specs[0].fingerprint = move->specs[0].fingerprint;
  request.specs[0].from_fingerprint = request.specs[0].fingerprint;
  EXPECT_THAT(Prepare(request), IsOk());
  request.specs[0].from_fingerprint = "00";
  EXPECT_THAT(Prepare(request), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("item.specs[0].from_fingerprint: 00")));
}

}  // namespace
}  // namespace phasor
