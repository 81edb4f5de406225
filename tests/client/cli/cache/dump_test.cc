// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/dump.h"

#include <string>
#include <vector>

#include "client/cli/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/tensor/safetensors.h"
#include "tests/support/llama_states.h"
#include "tests/support/rotated_caches.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::LlamaCache;
using ::phasor::testing::LlamaSequenceFile;
using ::phasor::testing::LlamaStream;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DumpTest : public ::testing::Test {
 protected:
  absl::StatusOr<Dump> Open(const std::string& file, const std::string& tensor = "") {
    options_.common.file = dir_.path() + "/" + file;
    options_.common.tensor = tensor;
    return OpenDump(options_, model_);
  }
  void WriteLlama(const std::string& file, const std::vector<LlamaStream>& caches) {
    std::string bytes;
    for (const LlamaStream& cache : caches) bytes += LlamaCache({cache});
    dir_.Write(file, LlamaSequenceFile(bytes));
  }

  const testing::TempDir dir_;
  DumpOptions options_{.common = {.layout = {.name = "nhd", .page_size = 0}}};
  ModelLayers model_{.head_dim = [](int64_t) { return int64_t{4}; }};
};

std::vector<int64_t> LayerNumbers(const Dump& dump) {
  std::vector<int64_t> numbers;
  for (const DumpLayer& layer : dump.layers) numbers.push_back(layer.layer);
  return numbers;
}

TEST_F(DumpTest, AnNpyOfEachLayerGivesSizesAndCodes) {
  model_.head_dim = [](int64_t) { return testing::kCacheDim; };
  testing::WriteCache(dir_.path() + "/keys.0.npy", 1, 1e4, 0);
  testing::WriteCache(dir_.path() + "/keys.2.npy", 1, 1e4, 0);
  testing::WriteCache(dir_.path() + "/values.2.npy", 1, 1e4, 0);
  model_.count = 4;
  const auto dump = Open("keys.{layer}.npy");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_THAT(LayerNumbers(*dump), ElementsAre(0, 2));
  EXPECT_THAT(dump->notes, ElementsAre(HasSubstr("has no keys of layers 1, 3")));
  const KeyLayout& layout = dump->layers[0].layout;
  EXPECT_EQ(layout.code, KeyCode::kFloat32);
  EXPECT_EQ(layout.page_size, testing::kCacheTokens);
  EXPECT_EQ(layout.heads, testing::kCacheHeads);
  EXPECT_EQ(dump->layers[0].offset_bytes % 64, 0);
  EXPECT_FALSE(dump->layers[0].values_file.has_value());
  EXPECT_TRUE(dump->layers[1].values_file.has_value());
}

TEST_F(DumpTest, TensorsOfSafetensorsAreFoundByName) {
  const std::string head =
      FormatSafetensorsHeader("key_cache.0", {Dtype::kBFloat16, {3, 2, 4}, {}});
  dir_.Write("k.safetensors", head + std::string(48, 'x'));
  const auto dump = Open("k.safetensors", "key_cache.{layer}");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->layers[0].layout.code, KeyCode::kBFloat16);
  EXPECT_EQ(dump->layers[0].offset_bytes, static_cast<int64_t>(head.size()));
  EXPECT_THAT(Open("k.safetensors", "key_cach.{layer}").status(),
              StatusIs(testing::kInvalid,
                       HasSubstr("has no tensor 'key_cach.0'; did you mean \"key_cache.0\"?")));
}

TEST_F(DumpTest, TensorsOfBytesNeedACodeUnlessTheirTypeSaysIt) {
  const std::string head = R"({"k":{"dtype":"U8","shape":[1,2,1,4],"data_offsets":[0,8]},)"
                           R"("f":{"dtype":"F8_E5M2","shape":[1,2,1,4],"data_offsets":[8,16]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(head.size());
  dir_.Write("k.safetensors", file + head + std::string(16, 'x'));
  EXPECT_EQ(Open("k.safetensors", "f")->layers[0].layout.code, KeyCode::kFloat8E5M2);
  EXPECT_THAT(
      Open("k.safetensors", "k").status(),
      StatusIs(testing::kInvalid, HasSubstr("elements of U8 do not say how keys are stored")));
  const std::string npy = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 1, 4)}";
  dir_.Write("k.npy", std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(npy.size()) + '\0' +
                          npy + std::string(8, 'x'));
  EXPECT_THAT(Open("k.npy").status(), StatusIs(testing::kInvalid, HasSubstr("elements of u1")));
  options_.common.code = KeyCode::kInt8;
  EXPECT_EQ(Open("k.safetensors", "k")->layers[0].layout.code, KeyCode::kInt8);
  EXPECT_EQ(Open("k.npy")->layers[0].layout.code, KeyCode::kInt8);
}

TEST_F(DumpTest, AFileOfBytesNeedsSizes) {
  dir_.Write("keys.bin", std::string(1000, 'x'));
  EXPECT_THAT(Open("keys.bin").status(), StatusIs(testing::kInvalid, HasSubstr("--pages; must")));
  options_.common.layout.pages = 2;
  options_.common.layout.heads = 1;
  options_.common.offset_bytes = 10;
  for (const int64_t count : {-1, 0, 513}) {
    options_.count = count;
    EXPECT_THAT(Open("keys.bin").status(), StatusIs(testing::kInvalid, HasSubstr("--layers of ")));
  }
  options_.count = 3;
  const auto dump = Open("keys.bin");
  ASSERT_TRUE(dump.ok()) << dump.status();
  ASSERT_EQ(dump->layers.size(), 3u);
  EXPECT_EQ(dump->layers[2].index, 2);
  EXPECT_EQ(dump->layers[2].layout.layers, 3);
  EXPECT_EQ(dump->layers[2].offset_bytes, 10);
  EXPECT_EQ(dump->layers[2].layout.code, KeyCode::kBFloat16);
}

TEST_F(DumpTest, ADescriptionIsRelativeToItsFolder) {
  dir_.Write("keys.bin", std::string(1000, 'x'));
  dir_.Write("d.json", R"({"file": "keys.bin", "pages": 1, "page_size": 2, "heads": 1, "layers": [
      {"layer": 4, "offset_bytes": 8}, {"layer": 1, "code": "float16"}]})");
  const auto dump = Open("d.json");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_THAT(LayerNumbers(*dump), ElementsAre(1, 4));
  EXPECT_EQ(dump->layers[0].layout.code, KeyCode::kFloat16);
  EXPECT_EQ(dump->layers[1].offset_bytes, 8);
  dir_.Write("d.json", R"({"file": "keys.bin", "pages": 1, "heads": 1,
      "layers": [{"layer": 4}, {"layer": 4}]})");
  EXPECT_THAT(Open("d.json").status(), StatusIs(testing::kInvalid, HasSubstr("described twice")));
  dir_.Write("d.json", R"({"layers": 2})");
  EXPECT_THAT(Open("d.json").status(), StatusIs(testing::kInvalid, HasSubstr("names no file")));
}

TEST_F(DumpTest, AStateOfLlamaHasHeadsOfTheModel) {
  WriteLlama("f.state", {{.cells = {{3}, {2}}, .row_bytes = 16}});
  const auto dump = Open("f.state");
  ASSERT_TRUE(dump.ok()) << dump.status();
  ASSERT_EQ(dump->layers.size(), 2u);
  const KeyLayout& layout = dump->layers[1].layout;
  EXPECT_EQ(layout.heads, 2);
  EXPECT_EQ(layout.page_size, 2);
  EXPECT_EQ(layout.hadamard, 0);
  EXPECT_THAT(dump->layers[1].cells->slots, ElementsAre(1, 0));
  model_.head_dim = [](int64_t) { return int64_t{5}; };
  EXPECT_THAT(Open("f.state").status(),
              StatusIs(testing::kInvalid, HasSubstr("rows of 8 lanes are not whole heads of 5")));
  model_.head_dim = nullptr;
  options_.common.layout.heads = 9;
  EXPECT_THAT(Open("f.state").status(),
              StatusIs(testing::kInvalid, HasSubstr("rows of 8 lanes for --heads of 9")));
}

TEST_F(DumpTest, QuantisedKeysOfLlamaHaveAHadamardTransform) {
  const std::tuple<int64_t, int64_t> widths[] = {{128, 128}, {64, 64}, {192, 64}, {32, 0}};
  for (const auto& [width, block] : widths) {
    WriteLlama("f.state",
               {{.cells = {{0}}, .type = 8, .row_bytes = static_cast<uint64_t>(width / 32 * 34)}});
    model_.head_dim = [width = width](int64_t) { return width; };
    EXPECT_EQ(Open("f.state")->layers[0].layout.hadamard, block) << width;
  }
  LlamaStream newer = {.cells = {{0}}, .type = 8, .row_bytes = 34, .hadamard = 16};
  dir_.Write("f.state", LlamaSequenceFile(LlamaCache({newer}), 4));
  EXPECT_EQ(Open("f.state")->layers[0].layout.hadamard, 16);
  options_.hadamard = 0;
  EXPECT_EQ(Open("f.state")->layers[0].layout.hadamard, 0);
}

TEST_F(DumpTest, RowsOfMlaRotateBehindTheirContent) {
  model_.content_lanes = 4;
  WriteLlama("f.state", {{.cells = {{0}}, .row_bytes = 16, .values = false}});
  const KeyLayout layout = Open("f.state")->layers[0].layout;
  EXPECT_EQ(layout.heads, 1);
  EXPECT_EQ(layout.lanes_offset, 8);
  EXPECT_EQ(layout.row_bytes, 16);
}

TEST_F(DumpTest, LayersOfTwoCachesAreThoseWithoutAndWithAWindow) {
  WriteLlama("f.state", {{.cells = {{0}}, .layers = 1}, {.cells = {{0}}, .layers = 2}});
  EXPECT_THAT(Open("f.state").status(), StatusIs(testing::kInvalid, HasSubstr("--layer-numbers")));
  model_.full_layers = {1};
  model_.window_layers = {0, 2};
  const auto dump = Open("f.state");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_THAT(LayerNumbers(*dump), ElementsAre(0, 1, 2));
  EXPECT_LT(dump->layers[1].offset_bytes, dump->layers[0].offset_bytes);
  options_.numbers = {7, 8, 9};
  EXPECT_THAT(LayerNumbers(*Open("f.state")), ElementsAre(7, 8, 9));
}

TEST_F(DumpTest, FilesThatEndAnywhereAreRefused) {
  testing::WriteCache(dir_.path() + "/whole.npy", 1, 1e4, 0);
  const std::string npy = dir_.Read("whole.npy");
  const std::string tensors =
      FormatSafetensorsHeader("key_cache.0", {Dtype::kFloat32, {3, 2, 4}, {}}) +
      std::string(96, 'x');
  model_.head_dim = nullptr;
  for (size_t size = 0; size < 200; ++size) {
    dir_.Write("cut.npy", npy.substr(0, size));
    EXPECT_FALSE(Open("cut.npy").ok()) << size;
    if (size >= tensors.size()) continue;
    dir_.Write("cut.safetensors", tensors.substr(0, size));
    EXPECT_FALSE(Open("cut.safetensors", "key_cache.{layer}").ok()) << size;
  }
  dir_.Write("cut.npy", npy.substr(0, npy.size() - 1));
  EXPECT_FALSE(Open("cut.npy").ok());
}

}  // namespace
}  // namespace phasor::cli
