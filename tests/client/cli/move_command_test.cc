// SPDX-License-Identifier: Apache-2.0
// Tests `phasor move-keys` on files, in process.
#include "client/cli/move_command.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "client/cli/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/run_command.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

// A cache of float32 [layers 2, pages 2, page_size 4, heads 1, head_dim 8] in a file.
class MoveCommandTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRow = 8, kLayer = 2 * 4 * kRow;

  void SetUp() override {
    for (int64_t i = 0; i < 2 * kLayer; ++i) {
      values_.push_back(1 + static_cast<float>(i % 13) / 16);
    }
    ASSERT_TRUE(WriteNpy(File("cache.npy"), View(values_, {2, 2, 4, 1, 8})).ok());
    std::ofstream(File("cache.bin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(values_.data()),
               static_cast<std::streamsize>(values_.size() * sizeof(float)));
  }

  std::string File(const std::string& name) const { return dir_.path() + "/" + name; }
  std::vector<std::string> Arguments(std::vector<std::string> more) const {
    std::vector<std::string> all = {
        "move-keys", "--preset", "rope-half-split", "--head-dim", "8",       "--code", "float32",
        "--pages",   "2",        "--page-size",     "4",          "--heads", "1",      "--layers",
        "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Where slot 1 of layer `layer` goes at positions 5 to 905, by ApplyRoPE.
  std::vector<float> Expected(int64_t layer) const {
    const float* const row = values_.data() + layer * kLayer + kRow;
    std::vector<float> key(row, row + kRow);
    const auto client = Client::Connect("inproc:");
    RopeCall call{.spec = {.preset = "rope-half-split"},
                  .positions = {905},
                  .tensors = {MutableView(key, {1, 1, 8})},
                  .direction = Direction::kDelta};
    call.from_positions = PositionList{5};
    EXPECT_TRUE(client->ApplyRoPE(call).ok());
    return key;
  }
  std::vector<float> ReadFloats(const std::string& name, size_t skip) const {
    std::ifstream stream(File(name), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
    std::vector<float> floats((bytes.size() - skip) / sizeof(float));
    std::memcpy(floats.data(), bytes.data() + skip, floats.size() * sizeof(float));
    return floats;
  }

  const testing::TempDir dir_;
  std::vector<float> values_;
};

TEST_F(MoveCommandTest, LayersTurnAsThoseOfAModel) {
  std::ofstream(File("config.json"))
      << R"({"model_type": "granite_swa", "head_dim": 8, "num_hidden_layers": 2,
             "layer_rope_theta": [10000, 0]})";
  const Outcome run = RunCommand({"move-keys",
                                  "--config",
                                  File("config.json"),
                                  "--model",
                                  "--code",
                                  "float32",
                                  "--pages",
                                  "2",
                                  "--page-size",
                                  "4",
                                  "--heads",
                                  "1",
                                  "--layers",
                                  "2",
                                  "--input",
                                  File("cache.bin"),
                                  "--output",
                                  File("out.bin"),
                                  "--run",
                                  "1:1:5:905:6"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  std::vector<float> expected = values_;
  const std::vector<float> turned = Expected(0);
  std::copy(turned.begin(), turned.end(), expected.begin() + 6 * kRow);
  const auto still = values_.begin() + kLayer + kRow;
  std::copy(still, still + kRow, expected.begin() + kLayer + 6 * kRow);
  EXPECT_EQ(ReadFloats("out.bin", 0), expected);
}

TEST_F(MoveCommandTest, KeysOfAllLayersGoToOtherSlots) {
  const Outcome run = RunCommand(Arguments(
      {"--input", File("cache.bin"), "--output", File("out.bin"), "--run", "1:1:5:905:6"}));
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr("1 tokens, 64 bytes, spec "));
  std::vector<float> expected = values_;
  for (const int64_t layer : {0, 1}) {
    const std::vector<float> key = Expected(layer);
    std::copy(key.begin(), key.end(), expected.begin() + layer * kLayer + 6 * kRow);
  }
  EXPECT_EQ(ReadFloats("out.bin", 0), expected);
}

TEST_F(MoveCommandTest, AnNpyKeepsItsHeaderAndLayersMayStayUnrotated) {
  const Outcome run =
      RunCommand(Arguments({"--input", File("cache.npy"), "--output", File("out.npy"), "--run",
                            "1:1:5:905", "--in-place", "--unrotated", "0", "--json"}));
  ASSERT_TRUE(run.status.ok()) << run.status;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["tokens"], 1);
  EXPECT_EQ(json["specs"].size(), 1u);
  EXPECT_FALSE(json.contains("differences"));
  auto moved = ReadNpy(File("out.npy"), false);
  ASSERT_TRUE(moved.ok()) << moved.status();
  std::vector<float> expected = values_;
  const std::vector<float> key = Expected(1);
  std::copy(key.begin(), key.end(), expected.begin() + kLayer + kRow);
  EXPECT_EQ(std::memcmp(moved->bytes.data(), expected.data(), expected.size() * sizeof(float)), 0);
}

TEST_F(MoveCommandTest, AnNpySaysHowKeysAreStored) {
  const auto run = [&](const std::string& input, std::vector<std::string> more) {
    std::vector<std::string> all = {
        "move-keys",   "--preset", "rope-half-split", "--head-dim", "8",
        "--page-size", "4",        "--layers",        "2",          "--input",
        File(input),   "--output", File("o.npy"),     "--run",      "1:1:5:905",
        "--in-place"};
    all.insert(all.end(), more.begin(), more.end());
    return RunCommand(all).status;
  };
  const std::vector<std::string> sizes = {"--pages", "2", "--heads", "1"};
  ASSERT_TRUE(run("cache.npy", sizes).ok());  // without --code
  std::vector<float> expected = values_;
  for (const int64_t layer : {0, 1}) {
    const std::vector<float> key = Expected(layer);
    std::copy(key.begin(), key.end(), expected.begin() + layer * kLayer + kRow);
  }
  const auto moved = ReadNpy(File("o.npy"), false);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(std::memcmp(moved->bytes.data(), expected.data(), expected.size() * sizeof(float)), 0);

  EXPECT_THAT(run("cache.npy", {"--pages", "2", "--heads", "1", "--code", "bfloat16"}),
              StatusIs(testing::kInvalid, HasSubstr("elements of FLOAT32, but keys are said to be "
                                                    "BFLOAT16 (--code, or another file)")));
  EXPECT_THAT(run("cache.npy", {"--pages", "1", "--heads", "2"}),
              StatusIs(testing::kInvalid, HasSubstr("shape [2, 2, 4, 1, 8] does not end with")));
  EXPECT_THAT(
      run("cache.npy", {"--pages", "2", "--heads", "4611686018427387904"}),
      StatusIs(testing::kInvalid, HasSubstr("does not end with --heads (4611686018427387")));
  const std::vector<uint16_t> bits(values_.size(), 0x3C00);
  const auto write = [&](Dtype dtype) {
    const auto bytes = static_cast<int64_t>(bits.size() * sizeof bits[0]);
    const std::vector<int64_t> shape = {2, 2, 4, SizeOf(dtype) == 1 ? 16 : 8};
    ASSERT_TRUE(WriteNpy(File("bits.npy"),
                         {{dtype, shape}, reinterpret_cast<const std::byte*>(bits.data()), bytes})
                    .ok());
  };
  write(Dtype::kBFloat16);  // u2
  EXPECT_TRUE(run("bits.npy", sizes).ok());
  EXPECT_TRUE(run("bits.npy", {"--pages", "2", "--heads", "1", "--code", "float16"}).ok());
  write(Dtype::kFloat8E4M3);  // u1
  EXPECT_TRUE(run("bits.npy", {"--pages", "2", "--heads", "1", "--code", "float16"}).ok());
  EXPECT_THAT(run("bits.npy", sizes),
              StatusIs(testing::kInvalid, HasSubstr("bits.npy: bytes do not say how keys are")));
}

TEST_F(MoveCommandTest, ComparisonsPassWithTheRightSpecAndFailWithAnother) {
  ASSERT_TRUE(RunCommand(Arguments({"--input", File("cache.bin"), "--output", File("out.bin"),
                                    "--run", "0:8:5:905", "--in-place"}))
                  .status.ok());
  const std::vector<std::string> compare = {"--input",       File("cache.bin"), "--to-input",
                                            File("out.bin"), "--run",           "0:8:5:905",
                                            "--compare"};
  const Outcome right = RunCommand(Arguments(compare));
  EXPECT_TRUE(right.status.ok()) << right.status;
  EXPECT_THAT(right.out, HasSubstr("layer  relative rms"));
  EXPECT_THAT(right.out, HasSubstr("8 tokens"));
  std::vector<std::string> arguments = Arguments(compare);
  arguments.insert(arguments.end(), {"--rope-theta", "500", "--json"});
  const Outcome wrong = RunCommand(arguments);
  EXPECT_THAT(wrong.status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("2 of 2 layers")));
  const auto json = nlohmann::json::parse(wrong.out);
  EXPECT_EQ(json["differences"][1]["bad_rows"], 8);
  EXPECT_EQ(json["differences"][1]["first_bad_token"], 0);
  EXPECT_GT(json["differences"][1]["relative_rms"], 0.1);
}

TEST_F(MoveCommandTest, BlockTablesAndSpecsOfTheKeysAreRead) {
  std::ofstream(File("from.json")) << R"({"preset": "rope-half-split", "rope_theta": 500})";
  const Outcome run = RunCommand(
      Arguments({"--input", File("cache.bin"), "--output", File("out.bin"), "--run", "0:4:0:0",
                 "--block-table", "1", "--to-block-table", "0", "--from-spec", File("from.json")}));
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr(" from "));
  const std::vector<float> out = ReadFloats("out.bin", 0);
  // At position 0 the specs agree.
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + kRow, values_.begin() + 4 * kRow));
}

TEST_F(MoveCommandTest, ErrorsNameTheFlag) {
  const std::string cache = File("cache.bin");
  const auto status = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--input", cache});
    return RunCommand(Arguments(more)).status;
  };
  EXPECT_THAT(status({"--run", "0:1:0:1"}),
              StatusIs(testing::kInvalid, HasSubstr("--output: not")));
  EXPECT_THAT(status({"--run", "0:1:0:1", "--compare", "--output", cache}),
              StatusIs(testing::kInvalid, HasSubstr("--output: given; must not")));
  EXPECT_THAT(status({"--run", "0:1:0", "--compare"}),
              StatusIs(testing::kInvalid, HasSubstr("--run: 0:1:0; must be first:count:from:to")));
  EXPECT_THAT(status({"--run", "0:1:0:1", "--compare", "--to-input", cache, "--to-input", cache}),
              StatusIs(testing::kInvalid, HasSubstr("--to-input: given 2 times")));
  EXPECT_THAT(
      status({"--run", "0:1:0:1", "--output", "/no/such/folder/x", "--in-place"}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/no/such/folder/x cannot be")));
  EXPECT_THAT(status({"--run", "0:1:0:1", "--compare", "--unrotated", "0,2"}),
              StatusIs(testing::kInvalid, HasSubstr("--unrotated: 2; must be layers, in [0, 2)")));
  EXPECT_THAT(status({"--run", "0:9:0:1", "--compare"}),
              StatusIs(testing::kInvalid, HasSubstr("item.groups[0].runs[0].first")));
  EXPECT_THAT(RunCommand({"move-keys", "--input", cache, "--pages", "1", "--heads", "1", "--run",
                          "0:1:0:1", "--compare"})
                  .status,
              StatusIs(testing::kInvalid, HasSubstr("spec")));
}

TEST(ParseKeyRunTest, TakesFourOrFiveNumbers) {
  const auto run = ParseKeyRun("1:2:-3:4:0");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->first, 1);
  EXPECT_EQ(run->count, 2);
  EXPECT_EQ(run->from, -3);
  EXPECT_EQ(run->to, 4);
  EXPECT_EQ(run->to_first, 0);
  EXPECT_EQ(ParseKeyRun("1:2:3:4")->to_first, std::nullopt);
  for (const char* text : {"", "1:2:3", "1:2:3:4:5:6", "1:2:3:x", "1:2:3:4:", "1:2:3:4.5"}) {
    EXPECT_FALSE(ParseKeyRun(text).ok()) << text;
  }
}

}  // namespace
}  // namespace phasor::cli
