// SPDX-License-Identifier: Apache-2.0
// rope_parameters dictionaries of every rope_type, and the ones that are refused.
#include "kernels/spec/config_rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

ConfigModel Model(const char* name = "llama") { return *FindConfigModel(name); }

absl::StatusOr<ConfigRope> Read(const std::string& text, ConfigLengths lengths = {131072, {}},
                                ConfigModel model = Model()) {
  const Json json = Json::parse(text);
  return ReadConfigRope(JsonObject(json, "rope"), model, lengths);
}

RopeScaling Scaling(const std::string& text, ConfigLengths lengths = {131072, {}}) {
  const auto rope = Read(text, lengths);
  EXPECT_THAT(rope, IsOk()) << text;
  return rope.ok() ? rope->scaling : RopeScaling();
}

void ExpectRefused(const std::string& text, const std::string& message,
                   ConfigLengths lengths = {131072, {}}) {
  EXPECT_THAT(Read(text, lengths), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
      << text;
}

// Others take the amplitude from the factor, whatever these keys say.
TEST(ConfigRopeTest, PhiMoeAloneReadsAmplitudesOfLongRope) {
  const std::string text = R"({"rope_type": "longrope", "short_factor": [1], "long_factor": [2],
      "original_max_position_embeddings": 4096, "short_mscale": 1.1, "long_mscale": 1.3})";
  EXPECT_THAT(Read(text, {131072, {}}, Model("phimoe")), IsOk());
  EXPECT_THAT(Read(text, {131072, {}}, GenericConfigModel(false)), IsOk());
  EXPECT_THAT(Read(text, {131072, {}}, Model("phi3")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("short_mscale: is nothing that model_type phi3 reads")));
}

TEST(ConfigRopeTest, ReadsEveryType) {
  EXPECT_EQ(Scaling("{}"), RopeScaling());
  EXPECT_EQ(Scaling(R"({"rope_type": "default", "factor": null})"), RopeScaling());
  EXPECT_EQ(Scaling(R"({"type": "linear", "factor": 2.5})"), RopeScaling(LinearScaling{2.5}));
  EXPECT_EQ(Scaling(R"({"type": "dynamic", "factor": 4})"),
            RopeScaling(NtkScaling{
                .factor = 4.0, .dynamic = true, .original_max_position_embeddings = 131072}));
  EXPECT_EQ(Scaling(R"({"rope_type": "llama3", "factor": 16, "low_freq_factor": 1,
                        "high_freq_factor": 1, "original_max_position_embeddings": 8192})"),
            RopeScaling(Llama3Scaling{16.0, 1.0, 1.0, 8192}));
  EXPECT_EQ(Scaling(R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                        "high_freq_factor": 4, "original_max_position_embeddings": 8192})"),
            RopeScaling(Llama3Scaling{8.0, 1.0, 4.0, 8192}));
  EXPECT_EQ(Scaling(R"({"rope_type": "yarn", "factor": 4, "truncate": false, "beta_fast": 4,
                        "original_max_position_embeddings": 2048})"),
            RopeScaling(YarnScaling{.factor = 4.0,
                                    .original_max_position_embeddings = 2048,
                                    .beta_fast = 4.0,
                                    .truncate = false}));
}

TEST(ConfigRopeTest, RefusesATruncateThatIsNull) {
  ExpectRefused(R"({"rope_type": "yarn", "factor": 4, "truncate": null,
                    "original_max_position_embeddings": 2048})",
                "rope.truncate: null, which transformers takes for false; must be true, false or "
                "absent");
}

TEST(ConfigRopeTest, ProportionalIsADivisorOverWholeHeads) {
  const auto rope = Read(R"({"rope_type": "proportional", "partial_rotary_factor": 0.25,
                             "factor": 4})");
  ASSERT_THAT(rope, IsOk());
  EXPECT_TRUE(rope->proportional);
  EXPECT_EQ(rope->partial_rotary_factor, 0.25);
  EXPECT_EQ(rope->scaling, RopeScaling(LinearScaling{4.0}));
}

TEST(ConfigRopeTest, SuIsLongRopeAndMropeIsDefault) {
  const std::string lists = R"("short_factor": [1], "long_factor": [2])";
  const RopeScaling su = Scaling("{\"type\": \"su\", " + lists + "}", {8192, 4096});
  EXPECT_EQ(su, Scaling("{\"rope_type\": \"longrope\", " + lists + "}", {8192, 4096}));
  EXPECT_EQ(su, RopeScaling(LongRopeScaling{.short_factor = {1},
                                            .long_factor = {2},
                                            .original_max_position_embeddings = 4096,
                                            .factor = 2.0}));
  EXPECT_EQ(Scaling(R"({"type": "mrope", "rope_type": "default"})"), RopeScaling());
}

TEST(ConfigRopeTest, MscalesCountOnlyTogetherAndWithoutAnAmplitude) {
  const std::string yarn = R"("rope_type": "yarn", "factor": 4,
                              "original_max_position_embeddings": 2048)";
  const auto mscale = [&](const std::string& more) {
    const RopeScaling scaling = Scaling("{" + yarn + more + "}");
    return std::get<YarnScaling>(scaling).mscale;
  };
  EXPECT_EQ(mscale(R"(, "mscale": 0.5, "mscale_all_dim": 1)"), 0.5);
  EXPECT_EQ(mscale(R"(, "mscale": 0.5)"), std::nullopt);
  EXPECT_EQ(mscale(R"(, "mscale": 0.5, "mscale_all_dim": 0)"), std::nullopt);
  EXPECT_EQ(mscale(R"(, "mscale": 0.5, "mscale_all_dim": 1, "attention_factor": 2)"), std::nullopt);
}

TEST(ConfigRopeTest, AFactorThatIsAbsentIsTheRatioOfTheLengths) {
  const std::string yarn = R"({"rope_type": "yarn", "original_max_position_embeddings": 32768})";
  EXPECT_EQ(std::get<YarnScaling>(Scaling(yarn)).factor, 4.0);
  ExpectRefused(yarn, "rope.factor: not set; must be given without max_position_embeddings", {});
}

TEST(ConfigRopeTest, RefusesKeysThatItsTypeDoesNotUse) {
  ExpectRefused(R"({"rope_type": "default", "factor": 2})", "rope (rope_type default).factor");
  ExpectRefused(R"({"type": "linear", "factor": 2, "beta_fast": 32})", "beta_fast: no such field");
  ExpectRefused(R"({"type": "linear", "factr": 2})",
                "factr: no such field; the nearest known one is factor");
  ExpectRefused(R"({"rope_type": "yarn", "factor": 4, "attn_factor": 1,
                    "original_max_position_embeddings": 8})",
                "attn_factor: no such field");
  ExpectRefused(R"({"type": "dynamic", "factor": 1, "alpha": 1000})", "alpha: no such field");
}

TEST(ConfigRopeTest, RefusesTypesThatItDoesNotKnow) {
  ExpectRefused(R"({"rope_type": "fope"})",
                "rope.rope_type: fope is not known; did you mean \"mrope\"? must be");
  ExpectRefused(
      R"({"rope_type": "yran"})",
      "rope.rope_type: yran is not known; did you mean \"yarn\"? must be one of default, ");
  ExpectRefused(R"({"rope_type": 3})", "rope.rope_type: 3; must be a string");
  ExpectRefused(R"({"rope_type": "axial"})", "rope.rope_type: axial is not known");
}

TEST(ConfigRopeTest, RefusesWhatIsMissing) {
  ExpectRefused(R"({"type": "linear"})",
                "rope.factor: not set; must be given for rope_type linear");
  ExpectRefused(R"({"type": "yarn", "factor": 4})",
                "rope.original_max_position_embeddings: not set; must be given for rope_type yarn");
  ExpectRefused(R"({"type": "longrope", "long_factor": [1]})", "rope.short_factor: not set",
                {8192, 4096});
  ExpectRefused(R"({"type": "llama3", "factor": 8})", "rope.low_freq_factor: not set");
  ExpectRefused(R"({"type": "dynamic", "factor": 8})",
                "dynamic without max_position_embeddings; set both", {});
}

TEST(ConfigRopeTest, RefusesContradictions) {
  ExpectRefused(R"({"type": "linear", "rope_type": "yarn", "factor": 2})",
                "rope.type: linear contradicts rope_type yarn");
  ExpectRefused(R"({"type": "yarn", "factor": 2, "original_max_position_embeddings": 1024})",
                "1024 contradicts 4096 beside it", {8192, 4096});
  ExpectRefused(R"({"type": "yarn", "factor": 2, "original_max_position_embeddings": 1024,
                    "max_position_embeddings": 2048})",
                "rope.max_position_embeddings: 2048 contradicts 131072");
  ExpectRefused(R"({"type": "dynamic", "factor": 2, "original_max_position_embeddings": 1024})",
                "1024 contradicts max_position_embeddings 131072");
}

TEST(ConfigRopeTest, AlphaIsForTheModelsThatReadIt) {
  const auto rope = Read(R"({"type": "dynamic", "alpha": 1000.0, "factor": 1, "beta_fast": 32,
                             "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1})",
                         {}, Model("hunyuan_v1_dense"));
  ASSERT_THAT(rope, IsOk());
  EXPECT_EQ(rope->scaling, RopeScaling(NtkScaling{.factor = 1000.0}));
}

TEST(ConfigRopeTest, VisionTowersTakeNoScaling) {
  const ConfigModel vision = Model("qwen2_vl_vision");
  EXPECT_THAT(Read(R"({"rope_type": "axial", "rope_theta": 10000})", {}, vision), IsOk());
  EXPECT_THAT(Read(R"({"rope_type": "linear", "factor": 2})", {}, vision),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("rope.rope_type: linear"), HasSubstr("axial"))));
}

}  // namespace
}  // namespace phasor
