// SPDX-License-Identifier: Apache-2.0
// Tests results as text tables and as JSON.
#include "client/cli/output.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phasor::cli {
namespace {

using ::testing::HasSubstr;

TEST(OutputTest, ColumnsAlignAndRowsMayBeLonger) {
  EXPECT_EQ(FormatTable({"a", "name"}, {{"10", "x", "more"}, {"2", "longer"}}),
            "a   name\n10  x       more\n2   longer\n");
}

TEST(OutputTest, WideRowsAreCut) {
  const std::vector<float> values = {1, -2, 3, 0.5, 0, 7};
  EXPECT_EQ(FormatTensor(View(values, {2, 3}), 2),
            "FLOAT32 [2, 3]\n"
            "[0]   1.000000  -2.000000  ... 1 more\n"
            "[1]   0.500000   0.000000  ... 1 more\n");
  EXPECT_EQ(FormatTensor(View(values, {2, 1, 3}), 0),
            "FLOAT32 [2, 1, 3]\n"
            "[0, 0]   1.000000  -2.000000   3.000000\n"
            "[1, 0]   0.500000   0.000000   7.000000\n");
}

TEST(OutputTest, EmptyTensorsHaveNoRows) {
  EXPECT_EQ(FormatTensor(View(std::vector<float>(), {0, 3}), 0), "FLOAT32 [0, 3]\n");
}

TEST(OutputTest, JsonNestsAsTheShape) {
  const std::vector<BFloat16> values = {{0x3F80}, {0x4000}, {0xBF80}, {0}};
  EXPECT_EQ(ToJson(View(values, {2, 2})).dump(),
            R"({"dtype":"BFLOAT16","shape":[2,2],"values":[[1.0,2.0],[-1.0,0.0]]})");
}

TEST(OutputTest, ElementsOfEveryTypeAreRead) {
  EXPECT_EQ(ElementAt(View(std::vector<double>{1, 0.1}, {2}), 1), 0.1);
  EXPECT_EQ(ElementAt(View(std::vector<Float16>{{0}, {0x3C00}}, {2}), 1), 1.0);
  EXPECT_EQ(ElementAt(View(std::vector<int32_t>{5, -6}, {2}), 1), -6.0);
  EXPECT_EQ(ElementAt(View(std::vector<int64_t>{5, -7}, {2}), 1), -7.0);
}

TEST(OutputTest, TurnsAreExactHexadecimalFractions) {
  EXPECT_EQ(FormatTurns({0, uint64_t{1} << 63}), "0x0.8000000000000000");
  EXPECT_EQ(FormatTurns({-1, 1}), "-1 + 0x0.0000000000000001");
}

TEST(OutputTest, PartsOfAModelWithoutLayersSayWhy) {
  ModelDetails model;
  model.parts = {{.sub_config = "", .model_type = "m", .fingerprint = "f"},
                 {.sub_config = "vision_config", .error = "no such thing"}};
  EXPECT_THAT(FormatModel(model),
              ::testing::EndsWith("\nsub_config vision_config: no such thing\n"));
  EXPECT_EQ(ToJson(model)["parts"][1].dump(),
            R"({"sub_config":"vision_config","error":"no such thing"})");
}

TEST(OutputTest, DetailsShowFieldsThenPairs) {
  SpecDetails details{.spec = {.dim = 2}, .width = 2, .info = {"abc", 1, "cpu"}};
  details.pairs.push_back(
      {.turns = {0, uint64_t{1} << 62}, .inv_freq = 1.5, .sine_column = 0, .cosine_column = 1});
  EXPECT_EQ(FormatDetails(details),
            "dim               2\n"
            "amplitude         1\n"
            "width             2\n"
            "spec_fingerprint  abc\n"
            "numerics_version  1\n"
            "\n"
            "pair  axis  radians per position  turns per position (exact)  phase offset (turns)  "
            "columns\n"
            "0     0     1.5                   0x0.4000000000000000        0                     "
            "sin 0, cos 1\n");
  EXPECT_EQ(ToJson(details)["pairs"][0]["turns_fraction"], "0x4000000000000000");
}

TEST(OutputTest, DetailsShowHeadsAndLanes) {
  SpecDetails details{.spec = {.kind = SpecKind::kRotary}};
  details.pairs = {{.head = 0, .first_lane = 0, .second_lane = 1},
                   {.head = 1, .first_lane = 0, .second_lane = 1}};
  for (SpecDetails::Pair& pair : details.pairs) {
    pair.first_lane_out = 0;
    pair.second_lane_out = 4;
  }
  EXPECT_THAT(FormatDetails(details), HasSubstr("\nhead  pair  axis "));
  EXPECT_THAT(FormatDetails(details), HasSubstr(" 0, 1 -> 0, 4\n"));
  EXPECT_EQ(ToJson(details)["pairs"][1]["head"], 1);
  EXPECT_EQ(ToJson(details)["pairs"][1]["second_lane_out"], 4);
  EXPECT_FALSE(ToJson(details)["pairs"][1].contains("sine_column"));
}

TEST(OutputTest, ServersShowTheirDevices) {
  const ServerInfo info{
      .version = "1.2",
      .numerics_version = 3,
      .backends = {"cuda"},
      .cpu_target = "AVX2",
      .cpu_threads = 8,
      .listeners = {"unix:/p"},
      .max_inflight_bytes = 1024,
      .max_batch_items = 64,
      .lease_socket = "/l",
      .devices = {{0, "Card", "GPU-a", true, ""}, {2, "Card", "GPU-b", false, "Xid"}},
      .encoders = {{"keys", "0a1b"}}};
  EXPECT_EQ(FormatServerInfo(info),
            "version 1.2, numerics version 3\n"
            "backend cuda, AVX2, 8 threads\n"
            "listeners unix:/p\n"
            "limit max_inflight_bytes 1024\n"
            "limit max_batch_items 64\n"
            "lease socket /l\n"
            "encoder keys, spec 0a1b\n"
            "device 0: Card, GPU-a, works\n"
            "device 2: Card, GPU-b, lost: Xid\n");
  EXPECT_EQ(ToJson(info)["limits"]["max_batch_items"], 64);
  EXPECT_EQ(ToJson(info)["limits"]["inline_bytes"], 0);
  EXPECT_EQ(ToJson(info)["lease_socket"], "/l");
  EXPECT_EQ(ToJson(info)["encoders"].dump(), R"([{"name":"keys","spec_fingerprint":"0a1b"}])");
  EXPECT_EQ(ToJson(info)["devices"][1].dump(),
            R"({"number":2,"name":"Card","uuid":"GPU-b","working":false,"error":"Xid"})");
}

TEST(OutputTest, PresetsNameWhatTheCallerGives) {
  std::vector<Preset> presets = {{"p", "what", "where", {"dim", "axes"}, {}}};
  EXPECT_EQ(FormatPresets(presets),
            "name  you give               what it is\n"
            "p     dim, axes  unverified  what\n");
  EXPECT_TRUE(ToJson(presets[0])["context_length"].is_null());
  presets[0].verified = true;
  presets[0].context_length = 8192;
  EXPECT_EQ(FormatPresets(presets), "name  you give     what it is\np     dim, axes    what\n");
  EXPECT_EQ(ToJson(presets[0])["context_length"], 8192);
  EXPECT_EQ(ToJson(presets[0])["source"], "where");
}

}  // namespace
}  // namespace phasor::cli
