// SPDX-License-Identifier: Apache-2.0
// Moves cached keys and compares with rotations in double precision: every code, every layout by
// name, every mode. Every instruction set and number of threads gives the same bytes.
#include "kernels/cpu/move.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "tests/support/backends.h"
#include "tests/support/key_cache.h"
#include "tests/support/random_moves.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::FastestBackend;
using testing::FillRows;
using testing::IsOk;
using testing::KeyAt;
using testing::Pool;
using testing::RelativeRms;
using testing::RunMove;

constexpr int64_t kHeadDim = 128;
constexpr double kBase = 10000;

Spec HalfSplit(double theta = kBase) {
  Spec spec;
  spec.preset = "rope-half-split";
  spec.rope_theta = theta;
  return spec;
}

// A layout of 6 pages of 4 slots and 3 heads that fits the code and the name.
KeyLayout LayoutOf(KeyCode code, std::string_view name = "nhd", int64_t head_dim = kHeadDim) {
  KeyLayout layout{.name = std::string(name),
                   .code = code,
                   .pages = 6,
                   .page_size = 4,
                   .heads = 3,
                   .head_dim = head_dim};
  if (name.starts_with("vllm-per-token-head")) return layout;
  if (code == KeyCode::kInt8) {
    layout.row_bytes = head_dim + 4;  // each row with its scale behind it
    layout.head_bytes = head_dim + 4;
    layout.slot_bytes = 3 * (head_dim + 4);
    layout.page_bytes = 12 * (head_dim + 4);
    layout.scales = KeyScales{head_dim, *layout.page_bytes, *layout.slot_bytes, *layout.head_bytes};
  }
  return layout;
}

// One layer, one sequence of 7 tokens on pages 5, 1, 3 from place 2 on, from position 100 to 7.
MoveRequest RequestFor(const KeyLayout& layout, int64_t pool_bytes) {
  MoveRequest request;
  request.mode = MoveMode::kMove;
  request.pools = {pool_bytes};
  request.layouts = {layout};
  request.specs = {{.spec = HalfSplit()}};
  request.layers = {{.layout = 0, .spec = 0, .group = 0}};
  request.groups = {
      {.runs = {{.block_table = {5, 1, 3}, .first = 2, .count = 7, .from = 100, .to = 7}}}};
  return request;
}
constexpr int64_t kSlotsOfTokens[] = {22, 23, 4, 5, 6, 7, 12};

constexpr int64_t kPoolBytes = 256 << 10;  // two layers of any layout here need less

TEST(MoveTest, EveryCodeMovesAsExactlyAsItStores) {
  for (const KeyCode code : kKeyCodes) {
    for (const int64_t hadamard : {int64_t{0}, int64_t{64}, int64_t{128}}) {
      if (hadamard > 0 && !IsBlockCode(code)) continue;
      KeyLayout layout = LayoutOf(code);
      layout.hadamard = hadamard;
      Pool pool(kPoolBytes, std::byte{0x5A});
      const KeyForm form = ResolveKeyLayout(layout, "layout")->keys;
      FillRows(form, 0, 7, &pool);
      std::vector<Pool> moved = {pool};
      const MoveRequest request = RequestFor(layout, static_cast<int64_t>(pool.size()));
      ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk()) << Name(code);
      std::vector<double> got, want;
      for (const int64_t slot : kSlotsOfTokens) {
        for (int64_t head = 0; head < form.heads; ++head) {
          std::vector<double> key = KeyAt(form, pool, 0, slot, head);
          testing::TurnKey(kBase, 7 - 100, 0, kHeadDim / 2, true, &key);
          want.insert(want.end(), key.begin(), key.end());
          key = KeyAt(form, moved[0], 0, slot, head);
          got.insert(got.end(), key.begin(), key.end());
        }
      }
      const double error = RelativeRms(got, want);
      std::cout << Name(code) << ", Hadamard " << hadamard << ": relative RMS " << error << '\n';
      EXPECT_LE(error, testing::StorageError(code)) << Name(code) << ' ' << hadamard;
    }
  }
}

TEST(MoveTest, OnlyTheNamedSlotsChange) {
  for (const KeyCode code : kKeyCodes) {
    const KeyLayout layout = LayoutOf(code);
    Pool pool(kPoolBytes, std::byte{0x5A});
    const KeyForm form = ResolveKeyLayout(layout, "layout")->keys;
    FillRows(form, 0, 8, &pool);
    std::vector<Pool> moved = {pool};
    ASSERT_THAT(
        RunMove(RequestFor(layout, static_cast<int64_t>(pool.size())), FastestBackend(), &moved),
        IsOk());
    for (const int64_t slot : kSlotsOfTokens) {  // undo what may have changed
      for (int64_t head = 0; head < form.heads; ++head) {
        const int64_t row = form.RowOf(slot) + head * form.head_bytes;
        std::memcpy(moved[0].data() + row, pool.data() + row, static_cast<size_t>(form.bytes_from));
      }
    }
    EXPECT_EQ(moved[0], pool) << Name(code);
  }
}

TEST(MoveTest, ATokenThatKeepsItsPositionKeepsEveryByte) {
  for (const KeyCode code : kKeyCodes) {
    const KeyLayout layout = LayoutOf(code);
    Pool pool(kPoolBytes);
    std::mt19937 random(3);
    for (std::byte& byte : pool) byte = std::byte(random());  // NaNs and odd scales too
    MoveRequest request = RequestFor(layout, static_cast<int64_t>(pool.size()));
    request.groups[0].runs[0].to = 100;
    std::vector<Pool> moved = {pool};
    ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk());
    EXPECT_EQ(moved[0], pool) << Name(code);
  }
}

TEST(MoveTest, ACopyHasTheBytesOfAMoveAndKeepsItsSources) {
  for (const KeyCode code : kKeyCodes) {
    const KeyLayout layout = LayoutOf(code);
    Pool pool(kPoolBytes, std::byte{0x5A});
    const KeyForm form = ResolveKeyLayout(layout, "layout")->keys;
    FillRows(form, 0, 9, &pool);
    MoveRequest request = RequestFor(layout, static_cast<int64_t>(pool.size()));
    std::vector<Pool> moved = {pool};
    ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk());
    request.mode = MoveMode::kCopyOnWrite;
    request.pools.push_back(request.pools[0]);
    request.layers[0].to_place = KeyPlace{1, 0};
    std::vector<Pool> copied = {pool, Pool(pool.size(), std::byte{0x77})};
    ASSERT_THAT(RunMove(request, FastestBackend(), &copied), IsOk());
    EXPECT_EQ(copied[0], pool) << Name(code);
    for (const int64_t slot : kSlotsOfTokens) {
      for (int64_t head = 0; head < form.heads; ++head) {
        const int64_t row = form.RowOf(slot) + head * form.head_bytes;
        EXPECT_EQ(std::memcmp(copied[1].data() + row, moved[0].data() + row,
                              static_cast<size_t>(form.bytes_from)),
                  0)
            << Name(code) << " slot " << slot;
      }
    }
  }
}

// In place, and as copies to other pages.
void ExpectEqualBytes(MoveRequest request, const Pool& pool, std::string_view what) {
  for (const MoveMode mode : {MoveMode::kMove, MoveMode::kCopyOnWrite}) {
    request.mode = mode;
    if (mode == MoveMode::kCopyOnWrite) request.groups[0].runs[0].to_block_table = {0, 2, 4};
    std::optional<Pool> first;
    for (const auto& [name, backend] : testing::AllBackends()) {
      std::vector<Pool> moved = {pool};
      ASSERT_THAT(RunMove(request, *backend, &moved), IsOk()) << name;
      if (!first.has_value()) first = moved[0];
      EXPECT_EQ(moved[0], *first) << name << ' ' << what << ", mode " << static_cast<int>(mode);
    }
  }
}

TEST(MoveTest, EveryBackendGivesTheSameBytes) {
  for (const KeyCode code : kKeyCodes) {
    for (const int64_t hadamard : {int64_t{0}, int64_t{64}}) {
      KeyLayout layout = LayoutOf(code);
      layout.hadamard = hadamard;
      Pool pool(kPoolBytes, std::byte{0x5A});
      FillRows(ResolveKeyLayout(layout, "layout")->keys, 0, 10, &pool);
      MoveRequest request = RequestFor(layout, kPoolBytes);
      request.groups[0].runs[0].from = 5000000000;
      ExpectEqualBytes(request, pool, StrCat(Name(code), " Hadamard ", hadamard));
    }
  }
}

// With all bits: NaNs, infinities, scales of all sizes and, with the small amplitude, scales
// without an inverse. Without bit 2: FLOAT8 that are numbers, which have a loop of their own. Equal
// positions and half the amplitude: results in the middle between two codes.
TEST(MoveTest, EveryBackendGivesTheSameBytesForAnyBytes) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "takes minutes under ThreadSanitizer, and its threads are those of the test before";
#endif
  for (const int bits : {0xFF, 0xFB}) {
    Pool pool(kPoolBytes);
    std::mt19937 random(11);
    for (std::byte& byte : pool) byte = std::byte(random() & static_cast<unsigned>(bits));
    for (const KeyCode code : kKeyCodes) {
      if (UnitBytes(code) > 1 && !IsBlockCode(code)) continue;  // payloads of NaNs may differ
      for (const char* const preset : {"rope-half-split", "rope-interleaved"}) {
        for (const int64_t head_dim : {64, 128, 256}) {
          for (const double amplitude : {1.0, 0.5, 1e-37, 1e30}) {
            MoveRequest request = RequestFor(LayoutOf(code, "nhd", head_dim), kPoolBytes);
            request.specs[0].spec.preset = preset;
            request.specs[0].from_spec = request.specs[0].spec;
            request.specs[0].spec.attention_factor = amplitude;
            if (amplitude == 0.5) request.groups[0].runs[0].to = 100;
            ExpectEqualBytes(request, pool,
                             StrCat(Name(code), preset, head_dim, " ", amplitude, " ", bits));
          }
        }
      }
    }
  }
}

// Nobody uses the distance between heads where there is one, so that it may be that of a part.
TEST(MoveTest, TheDistanceOfASingleHeadMayBeAnything) {
  for (const KeyCode code : kKeyCodes) {
    KeyLayout layout = LayoutOf(code, "nhd", 256);
    layout.heads = 1;
    MoveRequest request = RequestFor(layout, kPoolBytes);
    request.specs[0].spec.rotary_begin = 128;
    request.specs[0].spec.rotary_dim = 128;
    request.specs[0].spec.head_dim = 256;
    Pool pool(kPoolBytes, std::byte{0x5A});
    const KeyForm form = ResolveKeyLayout(layout, "layout")->keys;
    FillRows(form, 0, 12, &pool);
    for (const int64_t head_bytes : {form.head_bytes, form.lanes_bytes() / 2, int64_t{1}}) {
      request.layouts[0].head_bytes = head_bytes;
      if (layout.scales.has_value()) request.layouts[0].scales->head_bytes = head_bytes;
      ExpectEqualBytes(request, pool, StrCat(Name(code), " ", head_bytes));
    }
  }
}

// Would fetch pages for days.
TEST(MoveTest, DistancesOfASingleSlotAndHeadMayBeFar) {
  const KeyLayout layout{.code = KeyCode::kFloat32,
                         .pages = 24,
                         .heads = 1,
                         .head_dim = kHeadDim,
                         .page_bytes = kHeadDim * 4,
                         .slot_bytes = int64_t{1} << 49,
                         .head_bytes = int64_t{1} << 49};
  MoveRequest request = RequestFor(layout, kPoolBytes);
  request.groups[0].runs[0].first = 0;
  request.groups[0].runs[0].count = 3;
  Pool pool(kPoolBytes, std::byte{0x5A});
  FillRows(ResolveKeyLayout(layout, "layout")->keys, 0, 13, &pool);
  ExpectEqualBytes(request, pool, "far");
}

TEST(MoveTest, RandomMovesHaveTheReferencesBytes) {
  const auto backends = testing::AllBackends();
  for (uint64_t seed = 0; seed < 500; ++seed) {
    testing::RandomMove random(seed);
    std::optional<std::vector<testing::Tensor>> want;
    for (const auto& [name, backend] : backends) {
      random.Reset();
      ASSERT_THAT(backend->Run({random.job()}), IsOk());
      const std::vector<testing::Tensor> got = random.Now();
      if (!want.has_value()) want = got;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(got[i].GuardsIntact()) << name << " seed " << seed << random.Describe();
        ASSERT_TRUE(SameBits((*want)[i], got[i])) << name << " seed " << seed << random.Describe();
      }
    }
  }
}

TEST(MoveTest, EveryNamedLayoutMovesItsKeysAndCopiesItsValues) {
  for (const NamedKeyLayout& named : NamedKeyLayouts()) {
    const bool row = named.order.find('W') != std::string_view::npos;
    const bool scales = named.order.find('S') != std::string_view::npos;
    const KeyCode usual = scales ? KeyCode::kInt8 : KeyCode::kBFloat16;
    KeyLayout layout = LayoutOf(named.code.value_or(usual), named.name);
    layout.layers = 2;
    if (row) layout.heads = 1, layout.head_dim = 64;
    const auto resolved = ResolveKeyLayout(layout, "layout");
    ASSERT_THAT(resolved, IsOk()) << named.name;
    const KeyForm& form = resolved->keys;
    Pool pool(kPoolBytes, std::byte{0x5A});
    const int64_t first_lane = resolved->layer_bytes + resolved->keys_offset;  // of layer 1
    FillRows(form, first_lane, 11, &pool);
    if (resolved->values.has_value()) {
      FillRows(*resolved->values, resolved->layer_bytes + resolved->values_offset, 12, &pool);
    }
    MoveRequest request = RequestFor(layout, static_cast<int64_t>(pool.size()));
    request.mode = MoveMode::kCopyOnWrite;
    request.layers[0].layer = 1;
    request.groups[0].runs[0].to_block_table = {0, 2, 4};
    std::vector<Pool> moved = {pool};
    ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk()) << named.name;
    std::vector<double> got, want;
    for (int64_t i = 0; i < 7; ++i) {
      const int64_t to =
          std::vector<int64_t>{0, 2, 4}[static_cast<size_t>((i + 2) / 4)] * 4 + (i + 2) % 4;
      for (int64_t head = 0; head < form.heads; ++head) {
        std::vector<double> key = KeyAt(form, pool, first_lane, kSlotsOfTokens[i], head);
        testing::TurnKey(kBase, 7 - 100, 0, form.head_dim / 2, true, &key);
        want.insert(want.end(), key.begin(), key.end());
        key = KeyAt(form, moved[0], first_lane, to, head);
        got.insert(got.end(), key.begin(), key.end());
        if (!resolved->values.has_value()) continue;
        const int64_t values = resolved->layer_bytes + resolved->values_offset;
        EXPECT_EQ(KeyAt(*resolved->values, moved[0], values, to, head),
                  KeyAt(*resolved->values, pool, values, kSlotsOfTokens[i], head))
            << named.name;
      }
    }
    EXPECT_LE(RelativeRms(got, want), testing::StorageError(form.code)) << named.name;
  }
}

TEST(MoveTest, RowsAroundTheRotaryLanesAreCopiedWithThem) {
  const KeyLayout layout{.name = "mla-576",
                         .code = KeyCode::kBFloat16,
                         .pages = 2,
                         .page_size = 4,
                         .heads = 1,
                         .head_dim = 64};
  Pool pool(2 * 4 * 1152);
  std::mt19937 random(4);
  for (std::byte& byte : pool) byte = std::byte(random() % 60);
  MoveRequest request = RequestFor(layout, static_cast<int64_t>(pool.size()));
  request.mode = MoveMode::kCopyOnWrite;
  request.groups = {{.runs = {{.block_table = {0},
                               .first = 0,
                               .count = 3,
                               .from = 0,
                               .to = 50,
                               .to_block_table = {1}}}}};
  std::vector<Pool> moved = {pool};
  ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk());
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::memcmp(moved[0].data() + (4 + i) * 1152, pool.data() + i * 1152, 1024), 0) << i;
    EXPECT_NE(
        std::memcmp(moved[0].data() + (4 + i) * 1152 + 1024, pool.data() + i * 1152 + 1024, 128), 0)
        << i;
  }
}

TEST(MoveTest, LayersWithOtherSpecsOrNoneGoInOneCall) {
  const KeyLayout layout = LayoutOf(KeyCode::kFloat32);
  const int64_t bytes = kPoolBytes;
  Pool pool(static_cast<size_t>(3 * bytes));
  const KeyForm form = ResolveKeyLayout(layout, "layout")->keys;
  for (int64_t l = 0; l < 3; ++l) FillRows(form, l * bytes, static_cast<uint32_t>(l), &pool);
  MoveRequest request = RequestFor(layout, 3 * bytes);
  request.specs = {{.spec = HalfSplit(10000)}, {.spec = HalfSplit(1e6)}};
  request.layers = {{.spec = 0},
                    {.spec = std::nullopt, .place = {0, bytes}},
                    {.spec = 1, .place = {0, 2 * bytes}}};
  std::vector<Pool> moved = {pool};
  ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk());
  for (int64_t l = 0; l < 3; ++l) {
    std::vector<double> want = KeyAt(form, pool, l * bytes, 22, 1);
    if (l != 1) testing::TurnKey(l == 0 ? 10000 : 1e6, -93, 0, 64, true, &want);
    EXPECT_LE(RelativeRms(KeyAt(form, moved[0], l * bytes, 22, 1), want), 1e-6) << l;
  }
}

TEST(MoveTest, TheAmplitudeOfASpecIsOnAKeyOnceHoweverOftenItMoves) {
  const KeyLayout layout = LayoutOf(KeyCode::kFloat32);
  Pool pool(kPoolBytes);
  const KeyForm form = ResolveKeyLayout(layout, "layout")->keys;
  FillRows(form, 0, 1, &pool);
  MoveRequest request = RequestFor(layout, static_cast<int64_t>(pool.size()));
  request.specs[0].spec.attention_factor = 1.138629;
  std::vector<Pool> moved = {pool};
  ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk());
  std::vector<double> want = KeyAt(form, pool, 0, 22, 0);
  testing::TurnKey(kBase, -93, 0, 64, true, &want);
  EXPECT_LE(RelativeRms(KeyAt(form, moved[0], 0, 22, 0), want), 1e-6);
  // From a spec without that amplitude to the one with it, at the same positions.
  request.specs[0].from_spec = HalfSplit();
  request.groups[0].runs[0].to = 100;
  moved = {pool};
  ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk());
  want = KeyAt(form, pool, 0, 22, 0);
  for (double& lane : want) lane *= 1.138629;
  EXPECT_LE(RelativeRms(KeyAt(form, moved[0], 0, 22, 0), want), 1e-6);
}

class CompareTest : public ::testing::TestWithParam<KeyCode> {};

TEST_P(CompareTest, AMovedCacheAgreesUnderItsSpecAndUnderNoOther) {
  const KeyLayout layout = LayoutOf(GetParam());
  Pool pool(kPoolBytes, std::byte{0x5A});
  FillRows(ResolveKeyLayout(layout, "layout")->keys, 0, 13, &pool);
  MoveRequest request = RequestFor(layout, static_cast<int64_t>(pool.size()));
  request.mode = MoveMode::kCopyOnWrite;
  request.pools.push_back(request.pools[0]);
  request.layers[0].to_place = KeyPlace{1, 0};
  std::vector<Pool> pools = {pool, pool};
  ASSERT_THAT(RunMove(request, FastestBackend(), &pools), IsOk());
  request.mode = MoveMode::kCompare;
  const std::vector<Pool> before = pools;
  std::vector<std::byte> report;
  ASSERT_THAT(RunMove(request, FastestBackend(), &pools, &report), IsOk());
  KeyDifference found = DifferenceOf(report.data(), 0);
  EXPECT_EQ(found.max_abs, 0);
  EXPECT_EQ(found.bad_rows, 0);
  EXPECT_GT(found.reference_rms, 0);
  request.specs[0].spec = HalfSplit(1e6);
  ASSERT_THAT(RunMove(request, FastestBackend(), &pools, &report), IsOk());
  found = DifferenceOf(report.data(), 0);
  EXPECT_GT(found.relative_rms(), 0.5);
  EXPECT_EQ(found.bad_rows, 7 * 3);
  EXPECT_EQ(found.first_bad_token, 0);
  EXPECT_EQ(found.first_bad_slot, 22);
  EXPECT_EQ(found.first_bad_head, 0);
  EXPECT_EQ(pools, before) << "COMPARE wrote";
}

INSTANTIATE_TEST_SUITE_P(Codes, CompareTest, ::testing::ValuesIn(kKeyCodes),
                         [](const auto& param) { return std::string(Name(param.param)); });

TEST(MoveTest, EightMovesOfEveryCodeStayWithinTheirTable) {
  // Relative RMS after eight moves, Gaussian keys of 128 lanes (docs/move-keys.md).
  const std::pair<KeyCode, double> limits[] = {{KeyCode::kBFloat16, 0.0050},
                                               {KeyCode::kFloat8E4M3, 0.080},
                                               {KeyCode::kQ8_0, 0.0165},
                                               {KeyCode::kQ4_0, 0.26}};
  for (const auto& [code, limit] : limits) {
    const KeyLayout layout = LayoutOf(code);
    Pool pool(kPoolBytes, std::byte{0x5A});
    const KeyForm form = ResolveKeyLayout(layout, "layout")->keys;
    FillRows(form, 0, 14, &pool);
    std::vector<Pool> moved = {pool};
    MoveRequest request = RequestFor(layout, static_cast<int64_t>(pool.size()));
    KeyRun& run = request.groups[0].runs[0];
    run.from = 100;
    for (int i = 0; i < 8; ++i) {
      run.to = run.from + 977 * (i + 1);
      ASSERT_THAT(RunMove(request, FastestBackend(), &moved), IsOk());
      run.from = run.to;
    }
    std::vector<double> got, want;
    for (const int64_t slot : kSlotsOfTokens) {
      std::vector<double> key = KeyAt(form, pool, 0, slot, 0);
      testing::TurnKey(kBase, static_cast<double>(run.to - 100), 0, 64, true, &key);
      want.insert(want.end(), key.begin(), key.end());
      key = KeyAt(form, moved[0], 0, slot, 0);
      got.insert(got.end(), key.begin(), key.end());
    }
    std::cout << Name(code) << ", 8 moves: " << RelativeRms(got, want) << '\n';
    EXPECT_LE(RelativeRms(got, want), limit) << Name(code);
  }
}

}  // namespace
}  // namespace phasor
