// SPDX-License-Identifier: Apache-2.0
// The distances of every named layout, against formulas that were written down from the engines'
// shapes, and layouts that must be refused.
#include "kernels/request/key_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "kernels/request/move_keys.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::StatusIs;

// Sizes that differ from each other, so that no two distances are equal by chance.
constexpr int64_t B = 7, N = 16, H = 5, D = 128, L = 3, e = 2, kRow = D * e, kGroup = 16 / e;

KeyLayout Sized(std::string_view name) {
  return {.name = std::string(name),
          .code = KeyCode::kBFloat16,
          .pages = B,
          .page_size = N,
          .heads = H,
          .head_dim = D,
          .layers = L};
}

struct Distances {
  int64_t page, slot, head, lane = e, keys = 0, layer = 0, values = -1;
  bool operator==(const Distances&) const = default;
};

void PrintTo(const Distances& d, std::ostream* out) {
  *out << "page " << d.page << " slot " << d.slot << " head " << d.head << " lane " << d.lane
       << " keys " << d.keys << " layer " << d.layer << " values " << d.values;
}

// From the shapes that docs/move-keys.md lists; here written as products, not as orders.
const std::map<std::string_view, Distances>& Expected() {
  static const auto* const expected = new std::map<std::string_view, Distances>{
      {"vllm-lbnhc", {N * H * 2 * kRow, H * 2 * kRow, 2 * kRow, e, 0, B * N * H * 2 * kRow, kRow}},
      {"vllm-lbhnc", {H * N * 2 * kRow, 2 * kRow, N * 2 * kRow, e, 0, B * N * H * 2 * kRow, kRow}},
      {"vllm-lhbnc", {N * 2 * kRow, 2 * kRow, B * N * 2 * kRow, e, 0, B * N * H * 2 * kRow, kRow}},
      {"vllm-blnhc", {L * N * H * 2 * kRow, H * 2 * kRow, 2 * kRow, e, 0, N * H * 2 * kRow, kRow}},
      {"vllm-blhnc", {L * N * H * 2 * kRow, 2 * kRow, N * 2 * kRow, e, 0, N * H * 2 * kRow, kRow}},
      {"vllm-bhlnc", {H * L * N * 2 * kRow, 2 * kRow, L * N * 2 * kRow, e, 0, N * 2 * kRow, kRow}},
      {"vllm-cpu-vec",
       {H * 2 * N * kRow, e, 2 * N * kRow, N * e, 0, B * H * 2 * N * kRow, N * kRow}},
      {"vllm-rocm", {H * N * kRow, kGroup * e, N * kRow, e, 0, 2 * B * H * N * kRow, -1}},
      {"vllm-rocm-lbhnc", {2 * H * N * kRow, kGroup * e, N * kRow, e, 0, 2 * B * H * N * kRow, -1}},
      {"vllm-paged-x", {H * N * kRow, kGroup * e, N * kRow, e, 0, B * H * N * kRow, -1}},
      {"vllm-flash", {N * H * kRow, H * kRow, kRow, e, 0, 2 * B * N * H * kRow, B * N * H * kRow}},
      {"vllm-flash-hnd",
       {H * N * kRow, kRow, N * kRow, e, 0, 2 * B * N * H * kRow, B * N * H * kRow}},
      {"vllm-cross-layer",
       {L * 2 * N * H * kRow, H * kRow, kRow, e, 0, 2 * N * H * kRow, N * H * kRow}},
      {"flashinfer-nhd",
       {2 * N * H * kRow, H * kRow, kRow, e, 0, B * 2 * N * H * kRow, N * H * kRow}},
      {"flashinfer-hnd",
       {2 * H * N * kRow, kRow, N * kRow, e, 0, B * 2 * N * H * kRow, N * H * kRow}},
      {"nhd", {N * H * kRow, H * kRow, kRow, e, 0, B * N * H * kRow, -1}},
      {"hnd", {H * N * kRow, kRow, N * kRow, e, 0, B * N * H * kRow, -1}},
      {"trtllm", {L * 2 * H * N * kRow, kRow, N * kRow, e, 0, 2 * H * N * kRow, H * N * kRow}},
      {"max", {2 * L * N * H * kRow, H * kRow, kRow, e, 0, N * H * kRow, L * N * H * kRow}},
      {"lmcache-2ltd",
       {N * H * kRow, H * kRow, kRow, e, 0, B * N * H * kRow, L * B * N * H * kRow}},
      {"lmcache-t2d", {N * 2 * H * kRow, 2 * H * kRow, kRow, e, 0, B * N * 2 * H * kRow, H * kRow}},
      {"lmcache-2td", {N * H * kRow, H * kRow, kRow, e, 0, 2 * B * N * H * kRow, B * N * H * kRow}},
      {"llamacpp", {N * H * kRow, H * kRow, kRow, e, 0, B * N * H * kRow, -1}},
  };
  return *expected;
}

TEST(KeyLayoutsTest, EveryNameHasTheDistancesOfItsShape) {
  for (const auto& [name, expected] : Expected()) {
    const auto layout = ResolveKeyLayout(Sized(name), "layout");
    ASSERT_THAT(layout, IsOk()) << name;
    const KeyForm& form = layout->keys;
    const Distances got = {form.page_bytes,
                           form.slot_bytes,
                           form.head_bytes,
                           form.lane_bytes,
                           layout->keys_offset,
                           layout->layer_bytes,
                           layout->values.has_value() ? layout->values_offset : -1};
    EXPECT_EQ(got, expected) << name;
  }
}

TEST(KeyLayoutsTest, GroupsOfLanesLieApart) {
  const auto layout = ResolveKeyLayout(Sized("vllm-paged-x"), "layout");
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->keys.group_lanes, kGroup);
  EXPECT_EQ(layout->keys.group_bytes, N * kGroup * e);
  EXPECT_FALSE(layout->keys.dense());
}

TEST(KeyLayoutsTest, RowsOfMlaHoldTheirLanesAtTheEnd) {
  KeyLayout mla = Sized("mla-576");
  mla.heads = 1, mla.head_dim = 64;
  auto layout = ResolveKeyLayout(mla, "layout");
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->keys.page_bytes, N * 576 * e);
  EXPECT_EQ(layout->keys.slot_bytes, 576 * e);
  EXPECT_EQ(layout->keys_offset, 512 * e);
  EXPECT_EQ(layout->keys.bytes_before, 512 * e);
  EXPECT_EQ(layout->keys.bytes_from, 64 * e);
  mla.code = KeyCode::kQ8_0;  // llama.cpp
  layout = ResolveKeyLayout(mla, "layout");
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->keys.slot_bytes, 576 / 32 * 34);
  EXPECT_EQ(layout->keys_offset, 512 / 32 * 34);
  mla.code = KeyCode::kBFloat16;
  mla.name = "fp8-ds-mla";
  layout = ResolveKeyLayout(mla, "layout");
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->keys.page_bytes, N * 656);
  EXPECT_EQ(layout->keys_offset, 528);
  mla.name = "nvfp4-ds-mla";
  mla.code = KeyCode::kFloat8E4M3;
  layout = ResolveKeyLayout(mla, "layout");
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->keys.slot_bytes, 352);
  EXPECT_EQ(layout->keys_offset, 256);
  EXPECT_EQ(layout->keys.bytes_from, 96);  // the lanes, then the scales of the content
  mla.code = KeyCode::kBFloat16;
  mla.name = "dsv4";
  layout = ResolveKeyLayout(mla, "layout");
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->keys.page_bytes, (N * 584 + 575) / 576 * 576);
  EXPECT_EQ(layout->keys.slot_bytes, 576);
  EXPECT_EQ(layout->keys_offset, 448);
}

// The cache is said to be FLOAT8, but its rotary lanes are not: as bytes they would become noise.
TEST(KeyLayoutsTest, RotaryLanesOfMixedRowsHaveTheirOwnCode) {
  for (const auto& [name, right] :
       {std::pair("fp8-ds-mla", KeyCode::kBFloat16), std::pair("dsv4", KeyCode::kBFloat16),
        std::pair("nvfp4-ds-mla", KeyCode::kFloat8E4M3)}) {
    for (const KeyCode code : kKeyCodes) {
      KeyLayout layout = Sized(name);
      layout.heads = 1, layout.head_dim = 64, layout.code = code;
      if (code == right) {
        EXPECT_THAT(ResolveKeyLayout(layout, "layout"), IsOk()) << name;
      } else {
        EXPECT_FALSE(ResolveKeyLayout(layout, "layout").ok()) << name << " " << Name(code);
      }
    }
  }
  KeyLayout layout = Sized("fp8-ds-mla");
  layout.heads = 1, layout.head_dim = 64, layout.code = KeyCode::kFloat8E4M3;
  EXPECT_THAT(ResolveKeyLayout(layout, "layout"),
              StatusIs(kInvalid, HasSubstr("layout.code: FLOAT8_E4M3; must be BFLOAT16")));
}

TEST(KeyLayoutsTest, ScalesPerTokenAndHeadLieBehindEachHalf) {
  KeyLayout scaled = Sized("vllm-per-token-head");
  scaled.code = KeyCode::kInt8;
  const auto layout = ResolveKeyLayout(scaled, "layout");
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->keys.head_bytes, 2 * (D + 4));
  EXPECT_EQ(layout->keys.page_bytes, N * H * 2 * (D + 4));
  EXPECT_EQ(layout->keys.scales.offset, D);
  EXPECT_EQ(layout->values_offset, D + 4);
  scaled.name = "vllm-per-token-head-hnd";
  const auto heads = ResolveKeyLayout(scaled, "layout");
  ASSERT_THAT(heads, IsOk());
  EXPECT_EQ(heads->keys.slot_bytes, 2 * (D + 4));
  EXPECT_EQ(heads->keys.head_bytes, N * 2 * (D + 4));
  EXPECT_EQ(heads->keys.page_bytes, N * H * 2 * (D + 4));
  EXPECT_EQ(heads->keys.scales.offset, D);
  EXPECT_EQ(heads->keys.scales.head_bytes, N * 2 * (D + 4));
  EXPECT_EQ(heads->values_offset, D + 4);
}

TEST(KeyLayoutsTest, BlocksMakeShorterRows) {
  KeyLayout blocks = Sized("llamacpp");
  blocks.code = KeyCode::kQ8_0;
  const auto layout = ResolveKeyLayout(blocks, "layout");
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->keys.head_bytes, D / 32 * 34);
  EXPECT_EQ(layout->keys.slot_bytes, H * D / 32 * 34);
}

TEST(KeyLayoutsTest, EveryNameIsTested) {
  for (const NamedKeyLayout& named : NamedKeyLayouts()) {
    const bool row = named.order.find_first_of("WS") != std::string_view::npos;
    EXPECT_TRUE(row || Expected().contains(named.name)) << named.name;
    EXPECT_FALSE(named.users.empty()) << named.name;
  }
}

void ExpectRefused(KeyLayout layout, const std::string& message) {
  EXPECT_THAT(ResolveKeyLayout(layout, "layout"), StatusIs(kInvalid, HasSubstr(message)));
}

TEST(KeyLayoutsTest, WrongLayoutsAreRefusedWithTheirField) {
  KeyLayout layout = Sized("vllm-lbhcn");
  ExpectRefused(layout, "layout.name: unknown 'vllm-lbhcn'; did you mean \"vllm-lbnhc\"?");
  layout = Sized("nhd");
  layout.pages = 0;
  ExpectRefused(layout, "layout.pages: 0; must be in [1, 2^40]");
  layout = Sized("nhd");
  layout.pages = int64_t{1} << 40;
  layout.page_size = int64_t{1} << 40;
  ExpectRefused(layout, "2^50 bytes or more");
  layout = Sized("nhd");
  layout.code = KeyCode::kQ4_0;
  layout.head_dim = 80;
  ExpectRefused(layout, "layout.head_dim: 80; must be a multiple of 32 for Q4_0");
  layout = Sized("nhd");
  layout.hadamard = 48;
  ExpectRefused(layout, "layout.hadamard: 48");
  layout = Sized("nhd");
  layout.code = KeyCode::kInt8;
  ExpectRefused(layout, "layout.scales: not set; must be given for INT8");
  layout = Sized("nhd");
  layout.scales = KeyScales{};
  ExpectRefused(layout, "layout.scales: set for BFLOAT16");
  layout = Sized("vllm-per-token-head");
  ExpectRefused(layout, "layout.code: BFLOAT16");
  layout = Sized("nhd");
  layout.scale = 2.0f;
  ExpectRefused(layout, "layout.scale: set for BFLOAT16");
  layout.code = KeyCode::kFloat8E4M3;
  layout.scale = 0.0f;
  ExpectRefused(layout, "layout.scale: 0; must be finite and > 0");
  layout = Sized("mla-576");
  ExpectRefused(layout, "layout.heads: 5; must be 1 for mla-576");
  layout = Sized("nhd");
  layout.row_bytes = 100;
  ExpectRefused(layout, "layout.row_bytes: 100; must hold 256 bytes");
  layout = Sized("nhd");
  layout.slot_bytes = -4;
  ExpectRefused(layout, "layout.slot_bytes: -4");
  layout = Sized("nhd");
  layout.group_lanes = 24;
  ExpectRefused(layout, "layout.group_lanes: 24; must divide head_dim (128)");
  layout = Sized("vllm-paged-x");
  layout.code = KeyCode::kQ8_0;
  ExpectRefused(layout, "must fill groups of 16 bytes");
  layout = Sized("vllm-cpu-vec");
  layout.code = KeyCode::kQ8_0;
  ExpectRefused(layout, "layout.code: Q8_0 where lanes are not side by side");
}

// Gaps between pages, slots or heads are also before the values and the next layer.
TEST(KeyLayoutsTest, DistancesMoveWhatLiesOutsideThem) {
  constexpr int64_t kGap = 64;
  const auto with = [](std::string_view name, std::optional<int64_t> KeyLayout::*field,
                       int64_t distance) {
    KeyLayout layout = Sized(name);
    layout.*field = distance;
    return *ResolveKeyLayout(layout, "layout");
  };
  const int64_t page = N * H * kRow + kGap, slot = H * kRow + kGap, head = kRow + kGap;
  auto layout = with("vllm-flash", &KeyLayout::page_bytes, page);
  EXPECT_EQ(layout.values_offset, B * page);
  EXPECT_EQ(layout.layer_bytes, 2 * B * page);
  layout = with("nhd", &KeyLayout::slot_bytes, slot);
  EXPECT_EQ(layout.keys.page_bytes, N * slot);
  EXPECT_EQ(layout.layer_bytes, B * N * slot);
  layout = with("flashinfer-nhd", &KeyLayout::head_bytes, head);
  EXPECT_EQ(layout.keys.slot_bytes, H * head);
  EXPECT_EQ(layout.values_offset, N * H * head);
  // Pages around layers: those lie as close as without gaps.
  layout = with("vllm-blnhc", &KeyLayout::page_bytes, L * N * H * 2 * kRow + kGap);
  EXPECT_EQ(layout.layer_bytes, N * H * 2 * kRow);
  // A slot inside a head, told by distances: nothing lies closer for that.
  KeyLayout turned = Sized("nhd");
  turned.head_bytes = N * kRow;
  turned.slot_bytes = kRow;
  EXPECT_EQ(ResolveKeyLayout(turned, "layout")->keys.page_bytes, N * H * kRow);
}

TEST(KeyLayoutsTest, ValuesHaveScalesAsKeysDo) {
  KeyLayout layout = Sized("vllm-cpu-vec");  // where their lanes have another order
  layout.code = KeyCode::kFloat8E4M3;
  layout.scales = KeyScales{1 << 20, 64, 4, 4};
  const auto resolved = ResolveKeyLayout(layout, "layout");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(resolved->values->scaled_rows);
  EXPECT_EQ(resolved->values->scales, resolved->keys.scales);
}

}  // namespace
}  // namespace phasor
