// SPDX-License-Identifier: Apache-2.0
// Tests the subcommands in this process. main_test.cc runs the binary.
#include "client/cli/commands.h"

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

namespace phasor::cli {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

std::string TempPath(const std::string& name) {
  return ::testing::TempDir() + "/commands_test_" + name;
}

void Write(const std::string& path, const std::vector<float>& values, std::vector<int64_t> shape) {
  ASSERT_TRUE(WriteNpy(path, View(values, std::move(shape))).ok());
}

TEST(CommandsTest, EncodePrintsTheTwoAxisExample) {
  const Outcome run =
      RunCommand({"encode", "--preset", "grid-2d-concat", "--dim", "8", "--positions", "1/2"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr("[0]   0.841471   0.540302   0.010000   0.999950   0.909297  "
                                 "-0.416147   0.019999   0.999800\n"));
}

TEST(CommandsTest, EncodePrintsTheFlowMatchingExample) {
  const Outcome run = RunCommand({"encode", "--preset", "flow-periods", "--dim", "8", "--positions",
                                  "0.37", "--dtype", "float64", "--json"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  const auto json = nlohmann::json::parse(run.out);
  const std::vector<double> row = json["rows"]["values"][0];
  const std::vector<double> expected = {0, 1, -0.453990, 0.549023, -1, 0, 0.891007, 0.835807};
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(row[i], expected[i], 1e-6) << i;
  EXPECT_EQ(json["rows"]["dtype"], "FLOAT64");
}

TEST(CommandsTest, EncodeAddsAFileAndWritesAnother) {
  Write(TempPath("add.npy"), {1, 1, 1, 1}, {1, 4});
  const Outcome run =
      RunCommand({"encode", "--preset", "transformer", "--dim", "4", "--positions", "2", "--add-to",
                  TempPath("add.npy"), "--embedding-scale", "2", "--output", TempPath("rows.npy")});
  ASSERT_TRUE(run.status.ok()) << run.status;
  auto rows = ReadNpy(TempPath("rows.npy"), false);
  ASSERT_TRUE(rows.ok()) << rows.status();
  float first = 0;
  std::memcpy(&first, rows->bytes.data(), sizeof(first));
  EXPECT_NEAR(first, 2.909297f, 1e-6f);
}

TEST(CommandsTest, EncodePrintsARotaryTable) {
  const Outcome run = RunCommand({"encode", "--preset", "rope-half-split", "--head-dim", "4",
                                  "--positions", "2", "--form", "matrix-2x2", "--json"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  const auto rows = nlohmann::json::parse(run.out)["rows"];
  EXPECT_EQ(rows["shape"], (std::vector<int64_t>{1, 2, 2, 2}));
  const double c = rows["values"][0][0][0][0], minus_s = rows["values"][0][0][0][1];
  EXPECT_NEAR(c, -0.416147, 1e-6);
  EXPECT_NEAR(minus_s, -0.909297, 1e-6);
}

TEST(CommandsTest, RopeInvertsWhatItRotated) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  Write(TempPath("q.npy"), x, {2, 1, 4});
  Write(TempPath("k.npy"), x, {2, 1, 4});
  for (const char* direction : {"forward", "inverse"}) {
    const Outcome run =
        RunCommand({"rope", "--preset", "rope-half-split", "--range", "5:7", "--input",
                    TempPath("q.npy"), "--input", TempPath("k.npy"), "--output", TempPath("q.npy"),
                    "--output", TempPath("k.npy"), "--direction", direction});
    ASSERT_TRUE(run.status.ok()) << run.status;
  }
  auto back = ReadNpy(TempPath("k.npy"), false);
  ASSERT_TRUE(back.ok());
  const float* values = reinterpret_cast<const float*>(back->bytes.data());
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(values[i], x[i], 1e-5f);
}

TEST(CommandsTest, RopeWritesBitsOfFloat8) {
  // 1, -2, 3.4 and 1000 of float16, at position 0.
  const std::vector<Float16> x = {{0x3C00}, {0xC000}, {0x42CD}, {0x63D0}};
  ASSERT_TRUE(WriteNpy(TempPath("h.npy"), View(x, {1, 1, 4})).ok());
  std::vector<std::string> arguments = {
      "rope",    "--preset",        "rope-half-split", "--positions", "0",
      "--input", TempPath("h.npy"), "--output-dtype",  "float8-e4m3"};
  Outcome run = RunCommand(arguments);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr("1.000000  -2.000000   3.500000  448.000000"));
  arguments.insert(arguments.end(), {"--inv-scale", "0.5", "--output", TempPath("f8.npy")});
  run = RunCommand(arguments);
  ASSERT_TRUE(run.status.ok()) << run.status;
  std::ifstream file(TempPath("f8.npy"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(bytes, HasSubstr("'descr': '|u1'"));
  EXPECT_EQ(bytes.substr(bytes.size() - 4), "\x30\xB8\x3E\x7E");
  arguments[arguments.size() - 3] = "-1";
  EXPECT_THAT(RunCommand(arguments).status.message(),
              HasSubstr("item.tensors[0].inv_scale: -1; must be finite and > 0"));
}

TEST(CommandsTest, RopeMovesKeysByADelta) {
  Write(TempPath("k.npy"), {1, 2, 3, 4}, {1, 1, 4});
  const Outcome run =
      RunCommand({"rope", "--preset", "rope-interleaved", "--positions", "2", "--from-positions",
                  "0", "--direction", "delta", "--input", TempPath("k.npy")});
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr("-2.234742   0.077004   2.919405   4.059196"));
}

TEST(CommandsTest, RopeWantsAnOutputForEachInput) {
  Write(TempPath("k.npy"), {1, 2, 3, 4}, {1, 1, 4});
  const Outcome run =
      RunCommand({"rope", "--preset", "rope-interleaved", "--positions", "2", "--input",
                  TempPath("k.npy"), "--output", TempPath("a.npy"), "--output", TempPath("b.npy")});
  EXPECT_EQ(run.status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(CommandsTest, ResolvePrintsEveryFrequency) {
  const Outcome run = RunCommand({"resolve", "--preset", "llama-2", "--head-dim", "128"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  // 1/(2 pi) turns, correctly rounded to 2^-64: 0x0.28be60db9391054a7f09...
  EXPECT_THAT(run.out, HasSubstr("0     0     1                       0x0.28be60db9391054a"));
  EXPECT_THAT(run.out, HasSubstr("\n63    0     "));
  EXPECT_THAT(run.out, HasSubstr("HALF_SPLIT"));
  const Outcome as_json = RunCommand({"resolve", "--preset", "llama-2", "--json"});
  EXPECT_EQ(nlohmann::json::parse(as_json.out)["pairs"].size(), 64u);
}

TEST(CommandsTest, ResolveShowsAllLayersOfAModel) {
  std::ofstream(TempPath("config.json"))
      << R"({"model_type": "cohere2", "head_dim": 64, "num_hidden_layers": 5})";
  const std::vector<std::string> args = {"resolve", "--config", TempPath("config.json"), "--model"};
  const Outcome run = RunCommand(args);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr("model: cohere2, 5 layers, fingerprint "));
  EXPECT_THAT(run.out, HasSubstr("\n0-2,4   sliding_attention  0-63 of 64         10000"));
  EXPECT_THAT(run.out, HasSubstr("\n3       full_attention     none: not rotated\n"));
  std::vector<std::string> json_args = args;
  json_args.push_back("--json");
  const auto json = nlohmann::json::parse(RunCommand(json_args).out);
  EXPECT_EQ(json["parts"][0]["layers"][4]["spec"], 0);
  EXPECT_EQ(json["parts"][0]["layers"][3]["spec"], nullptr);
  EXPECT_EQ(json["specs"].size(), 1u);
}

TEST(CommandsTest, ResolveSaysHowFarUpstreamsArithmeticIsFromExact) {
  const std::vector<std::string> args = {"resolve", "--preset", "llama-2"};
  EXPECT_THAT(RunCommand(args).out,
              HasSubstr("\nlargest difference of upstream's arithmetic (PARITY) from exact, "
                        "positions below 4096 (4096 looked at), BFLOAT16 tensors\n  angle        "
                        "   0.0002"));
  const Outcome json = RunCommand(
      {"resolve", "--preset", "llama-2", "--json", "--context-length", "1", "--dtype", "float32"});
  ASSERT_TRUE(json.status.ok()) << json.status;
  const auto difference = nlohmann::json::parse(json.out)["difference"];
  EXPECT_EQ(difference["dtype"], "FLOAT32");
  EXPECT_EQ(difference["inv_freq"].size(), 64u);
  EXPECT_EQ(difference["largest_angle_difference"], 0.0);
}

TEST(CommandsTest, PresetsListsAllOfThem) {
  const Outcome run = RunCommand({"presets", "--json"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(nlohmann::json::parse(run.out).size(), Presets().size());
  EXPECT_THAT(RunCommand({"presets"}).out, HasSubstr("timestep-sin-cos"));
}

TEST(CommandsTest, InfoShowsWhatComputesHere) {
  EXPECT_THAT(RunCommand({"info"}).out, HasSubstr("\nbackend cpu, "));
  const Outcome json = RunCommand({"info", "--json"});
  ASSERT_TRUE(json.status.ok()) << json.status;
  EXPECT_TRUE(nlohmann::json::parse(json.out)["devices"].empty());
}

TEST(CommandsTest, ServersThatAreNotThereAreUnavailable) {
  EXPECT_EQ(RunCommand({"health", "--server", "unix:/nonexistent"}).status.code(),
            absl::StatusCode::kUnavailable);
  EXPECT_THAT(RunCommand({"health"}).status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("server: not set")));
}

}  // namespace
}  // namespace phasor::cli
