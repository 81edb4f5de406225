// SPDX-License-Identifier: Apache-2.0
// Tests `phasor check-cache` on files. check_cache_test.py has the faults of engines.
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/rotated_caches.h"
#include "tests/support/run_command.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

class CheckCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const uint32_t layer : {0u, 1u}) {
      for (const bool moved : {false, true}) {
        testing::WriteCache(dir_.path() + (moved ? "/b." : "/a.") + std::to_string(layer) + ".npy",
                            layer, 5e5, moved ? testing::kCacheDistance : 0);
      }
    }
  }
  Outcome Run(std::vector<std::string> more, const std::string& base = "500000") const {
    std::vector<std::string> arguments = {"check-cache",
                                          "--preset",
                                          "rope-half-split",
                                          "--head-dim",
                                          "32",
                                          "--rope-theta",
                                          base,
                                          "--layout",
                                          "nhd",
                                          "--input",
                                          dir_.path() + "/a.{layer}.npy",
                                          "--to-input",
                                          dir_.path() + "/b.{layer}.npy",
                                          "--layers",
                                          "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }

  const testing::TempDir dir_;
};

// Otherwise the shapes would be taken for those of dense keys.
TEST_F(CheckCommandTest, AnUnknownLayoutIsNamedBeforeTheShapeIsCompared) {
  const Outcome run = RunCommand({"check-cache", "--preset", "llama-2", "--head-dim", "64", "--to",
                                  "1000", "--layout", "hnk", "--input", dir_.path() + "/a.0.npy"});
  EXPECT_THAT(run.status,
              StatusIs(testing::kInvalid, HasSubstr("--layout: unknown 'hnk'; did you mean")));
}

TEST_F(CheckCommandTest, ARightCacheFits) {
  const Outcome run = Run({"--to", "1000"});
  EXPECT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr("layer  rotation"));
  EXPECT_THAT(run.out, HasSubstr("0 of 24"));
  EXPECT_THAT(run.out, HasSubstr("12 tokens from position 0 to 1000"));
  EXPECT_THAT(run.out, HasSubstr("The keys fit the specification.\n"));
}

TEST_F(CheckCommandTest, AWrongBaseIsFoundOut) {
  const Outcome run = Run({"--to", "1000"}, "10000");
  EXPECT_THAT(run.status,
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("--input: 2 of 2 layers do not fit the specification; Layers 0, 1 "
                                 "fit with rope_theta 500000 in place of 10000.")));
  EXPECT_THAT(run.out, HasSubstr("The keys do not fit the specification.\n"));
  const auto json = nlohmann::json::parse(Run({"--to", "1000", "--json"}, "10000").out);
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["layers"][1]["bad_rows"], 24);
  EXPECT_EQ(json["layers"][1]["first_bad_token"], 0);
  EXPECT_EQ(json["diagnoses"][0]["changes"], nlohmann::json({"rope_theta"}));
}

TEST_F(CheckCommandTest, UnrotatedLayersAreComparedAsTheyAre) {
  const auto json = nlohmann::json::parse(Run({"--to", "1000", "--unrotated", "1", "--json"}).out);
  EXPECT_EQ(json["layers"][0]["fits"], true);
  EXPECT_EQ(json["layers"][1]["rotation"], "none");
  EXPECT_EQ(json["diagnoses"][0]["says"], "Layer 1 fits with the rotation of layer 0.");
}

TEST_F(CheckCommandTest, AnyDescriptionIsReadOrRefusedByName) {
  const std::string fields[] = {"pages",        "page_size",   "heads",      "head_dim",
                                "page_bytes",   "slot_bytes",  "head_bytes", "lane_bytes",
                                "group_lanes",  "group_bytes", "row_bytes",  "lanes_offset",
                                "offset_bytes", "hadamard",    "index",      "layers_in_tensor"};
  const int64_t values[] = {-1,
                            0,
                            1,
                            2,
                            4,
                            32,
                            64,
                            128,
                            int64_t{1} << 31,
                            int64_t{1} << 40,
                            int64_t{1} << 62,
                            INT64_MAX,
                            INT64_MIN};
  const char* const layouts[] = {"", "nhd", "hnd", "vllm-lbnhc", "vllm-paged-x", "mla-576"};
  const char* const files[] = {"a.0.npy", "keys.bin"};
  dir_.Write("keys.bin", dir_.Read("a.0.npy"));
  std::mt19937 random(1);
  int accepted = 0;
  for (int run = 0; run < 300; ++run) {
    nlohmann::json json = {{"file", files[random() % 2]},
                           {"code", random() % 2 == 0 ? "float32" : "q8-0"},
                           {"layout", layouts[random() % std::size(layouts)]},
                           {"pages", 1},
                           {"page_size", 12},
                           {"heads", 2}};
    for (uint32_t change = random() % 4; change > 0; --change) {
      json[fields[random() % std::size(fields)]] = values[random() % std::size(values)];
    }
    dir_.Write("d.json", json.dump());
    const Outcome outcome =
        RunCommand({"check-cache", "--preset", "rope-half-split", "--head-dim", "32", "--input",
                    dir_.path() + "/d.json", "--to", "1000", "--count", "4", "--first",
                    random() % 8 == 0 ? "281474976710656" : "0"});
    const bool named = outcome.status.message().find(": ") != absl::string_view::npos;
    EXPECT_TRUE(outcome.status.ok() || named) << json << outcome.status;
    accepted += outcome.out.empty() ? 0 : 1;
  }
  EXPECT_GT(accepted, 20);
}

TEST_F(CheckCommandTest, ErrorsNameTheFlag) {
  EXPECT_THAT(Run({}).status, StatusIs(testing::kInvalid, HasSubstr("--to: 0, as --from")));
  EXPECT_THAT(Run({"--to", "1", "--unrotated", "-1"}).status,
              StatusIs(testing::kInvalid, HasSubstr("--unrotated: -1; must be in")));
  EXPECT_THAT(Run({"--to", "1", "--layer-numbers", "0,7"}).status,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("a.7.npy: cannot be opened")));
  EXPECT_THAT(Run({"--to", "1", "--kind", "encoding"}).status,
              StatusIs(testing::kInvalid, HasSubstr("has no meaning for ENCODING")));
}

}  // namespace
}  // namespace phasor::cli
