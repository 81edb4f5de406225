// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/description.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kWhole[] = R"({
  "file": "k.{layer}.bin", "layout": "vllm-lbnhc", "code": "float8-e4m3", "pages": 4,
  "page_size": 16, "heads": 8, "head_dim": 128, "page_bytes": 99, "scale": 0.5, "hadamard": 128,
  "offset_bytes": 64, "scales": {"offset": 128, "page_bytes": 1, "slot_bytes": 2, "head_bytes": 3},
  "layers": [{"layer": 3}, {"layer": 5, "pages": 7, "file": "/other"}]})";

TEST(DescriptionTest, LayersHaveWhatAllHaveAndWhatIsTheirOwn) {
  const auto description = ParseDescription(kWhole, "folder", "d.json");
  ASSERT_TRUE(description.ok()) << description.status();
  ASSERT_EQ(description->layers.size(), 2u);
  const LayerSource& first = description->layers[0];
  EXPECT_EQ(first.layer, 3);
  EXPECT_EQ(first.file, "folder/k.3.bin");
  EXPECT_EQ(first.code, KeyCode::kFloat8E4M3);
  EXPECT_EQ(first.offset_bytes, 64);
  EXPECT_EQ(first.layout.name, "vllm-lbnhc");
  EXPECT_EQ(first.layout.pages, 4);
  EXPECT_EQ(first.layout.page_size, 16);
  EXPECT_EQ(first.layout.heads, 8);
  EXPECT_EQ(first.layout.head_dim, 128);
  EXPECT_EQ(first.layout.page_bytes, 99);
  EXPECT_EQ(first.layout.slot_bytes, std::nullopt);
  EXPECT_EQ(first.layout.scale, 0.5f);
  EXPECT_EQ(first.layout.hadamard, 128);
  EXPECT_EQ(first.layout.scales, (KeyScales{128, 1, 2, 3}));
  EXPECT_EQ(description->layers[1].layer, 5);
  EXPECT_EQ(description->layers[1].layout.pages, 7);
  EXPECT_EQ(description->layers[1].file, "/other");
}

TEST(DescriptionTest, LayersMayBeANumber) {
  const auto description = ParseDescription(R"({"file": "k", "layers": 32})", "", "d.json");
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->count, 32);
  EXPECT_EQ(description->common.file, "k");
}

TEST(DescriptionTest, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "d.json: []; must be an object"},
      {R"({"page": 1})", "d.json.page: no such field; the nearest known one is pages"},
      {R"({"code": "bfloat"})",
       "d.json.code: \"bfloat\"; did you mean \"bfloat16\"? must be one of"},
      {R"({"layout": "hnk"})", "d.json.layout: unknown 'hnk'; did you mean \"hnd\"?"},
      {R"({"pages": "4"})", "d.json.pages: \"4\"; must be an integer"},
      {R"({"scales": {"ofset": 1}})", "d.json.scales.ofset: no such field"},
      {R"({"layers": 0})", "d.json.layers: 0; must be in [1, 512]"},
      {R"({"layers": []})", "d.json.layers: 0 entries"},
      {R"({"layers": [{"layer": -1}]})", "d.json.layers[0].layer: -1; must be"},
      {R"({"layer": 1})", "d.json.layer: given for all layers"},
      {"{", "d.json: not JSON"}};
  for (const auto& [text, says] : cases) {
    EXPECT_THAT(ParseDescription(text, "", "d.json").status(),
                StatusIs(testing::kInvalid, HasSubstr(says)))
        << text;
  }
}

TEST(DescriptionTest, TextsThatEndAnywhereAreRefused) {
  const std::string whole = kWhole;
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseDescription(whole.substr(0, size), "", "d.json").ok()) << size;
  }
}

TEST(DescriptionTest, NumbersGoIntoNamesOrCountLayersOfOneTensor) {
  LayerSource source = {.file = "k.{layer}.npy"};
  EXPECT_EQ(ForLayer(source, 12, 4).file, "k.12.npy");
  EXPECT_EQ(ForLayer(source, 12, 4).index, 0);
  source = {.file = "k.safetensors", .tensor = "a.{layer}.k"};
  EXPECT_EQ(ForLayer(source, 12, 4).tensor, "a.12.k");
  source = {.file = "k.bin"};
  EXPECT_EQ(ForLayer(source, 12, 4).index, 4);
}

TEST(DescriptionTest, ValuesAreNamedAsTheirKeys) {
  EXPECT_EQ(ValuesName("key_cache.3"), "value_cache.3");
  EXPECT_EQ(ValuesName("layers.3.keys"), "layers.3.values");
  EXPECT_EQ(ValuesName("layers.3.k_cache"), "layers.3.v_cache");
  EXPECT_EQ(ValuesName("cache.3"), "");
}

TEST(DescriptionTest, ShapesGiveTheSizesOfTheirLayout) {
  struct ShapeCase {
    const char* layout;
    std::vector<int64_t> shape;
    int64_t pages, page_size, heads, head_dim, layers;
  };
  const ShapeCase cases[] = {{"nhd", {10, 16, 8, 64}, 10, 16, 8, 64, 1},
                             {"nhd", {16, 8, 64}, 1, 16, 8, 64, 1},
                             {"nhd", {3, 10, 16, 8, 64}, 10, 16, 8, 64, 3},
                             {"hnd", {1, 8, 16, 64}, 1, 16, 8, 64, 1},
                             {"", {10, 16, 8, 64}, 10, 16, 8, 64, 1},
                             {"vllm-lbnhc", {10, 16, 8, 128}, 10, 16, 8, 64, 1},
                             {"vllm-flash", {2, 10, 16, 8, 64}, 10, 16, 8, 64, 1},
                             {"vllm-paged-x", {10, 8, 8, 16, 8}, 10, 16, 8, 64, 1},
                             {"lmcache-2ltd", {2, 3, 16, 512}, 1, 16, 8, 64, 3},
                             {"trtllm", {10, 3, 2, 8, 16, 64}, 10, 16, 8, 64, 3},
                             {"mla-576", {10, 16, 576}, 10, 16, 1, 64, 1}};
  for (const ShapeCase& shape : cases) {
    KeyLayout layout{.name = shape.layout, .page_size = 0, .head_dim = 64};
    ASSERT_EQ(SizesFromShape(shape.shape, "f", &layout), absl::OkStatus()) << shape.layout;
    EXPECT_EQ(layout.pages, shape.pages) << shape.layout;
    EXPECT_EQ(layout.page_size, shape.page_size) << shape.layout;
    EXPECT_EQ(layout.heads, shape.heads) << shape.layout;
    EXPECT_EQ(layout.head_dim, shape.head_dim) << shape.layout;
    EXPECT_EQ(layout.layers, shape.layers) << shape.layout;
  }
}

TEST(DescriptionTest, ShapesThatContradictAreRefused) {
  KeyLayout layout{.name = "nhd", .page_size = 0, .head_dim = 128};
  EXPECT_THAT(SizesFromShape({10, 16, 8, 64}, "f", &layout),
              StatusIs(testing::kInvalid, HasSubstr("said to be 128; must agree")));
  layout = {.name = "nhd", .page_size = 0};
  EXPECT_THAT(SizesFromShape({64}, "f", &layout),
              StatusIs(testing::kInvalid, HasSubstr("f: shape [64] is not that of layout nhd")));
  EXPECT_THAT(SizesFromShape({10, 0, 8, 64}, "f", &layout),
              StatusIs(testing::kInvalid, HasSubstr("is empty")));
}

}  // namespace
}  // namespace phasor::cli
