// SPDX-License-Identifier: Apache-2.0
// Tests which part of a configuration a spec means, and which parts there are.
#include "kernels/spec/config_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/spec/configurations.h"

namespace phasor {
namespace {

using testing::Config;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::Part;
using testing::StatusIs;

std::vector<std::string> PartsOf(const std::string& text) {
  return PartsOfConfig(Json::parse(text));
}

TEST(ConfigSectionTest, PartsAreModelsAndNotTheirFrames) {
  EXPECT_THAT(PartsOf(R"({"model_type": "a", "text_config": {"model_type": "llama"},
                          "vision_config": {"model_type": "b"}, "quantization_config": {}})"),
              ElementsAre("vision_config"));
  EXPECT_THAT(PartsOf(R"({"thinker_config": {"model_type": "c", "audio_config": {"model_type": "d"},
                          "text_config": {"model_type": "e"}}, "talker_config": 3})"),
              ElementsAre("thinker_config.audio_config", "thinker_config.text_config"));
  EXPECT_THAT(PartsOf(R"({"model_type": "qwen2_5_vl", "vision_config": {"depth": 2}})"),
              ElementsAre("vision_config"));
  EXPECT_THAT(PartsOf(R"({"a.b_config": {"model_type": "x"}})"), ElementsAre());
  EXPECT_THAT(PartsOf("[1]"), ElementsAre());
}

TEST(ConfigSectionTest, AFrameIsNoModelByItself) {
  EXPECT_TRUE(IsOnlyFrame(Json::parse(R"({"model_type": "qwen2_5_omni"})")));
  EXPECT_FALSE(IsOnlyFrame(Json::parse(R"({"model_type": "llama"})")));
  EXPECT_FALSE(IsOnlyFrame(Json::parse(R"({"model_type": "no-such"})")));
  EXPECT_FALSE(IsOnlyFrame(Json::parse(R"({"model_type": "gemma3", "text_config": {}})")));
  EXPECT_FALSE(IsOnlyFrame(Json::parse("[]")));
}

TEST(ConfigSectionTest, APartKnowsItsModel) {
  const Json root = Json::parse(R"({"model_type": "gemma3", "text_config": {"head_dim": 2},
                                    "vision_config": {"model_type": "no-such"}})");
  const auto text = ChooseSection(root, Spec(), "spec");
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(text->model().model_type, "gemma3_text");
  EXPECT_EQ(text->in.path(), "spec.config_json.text_config");
  Spec user = Part("", "vision_config");
  EXPECT_THAT(ChooseSection(root, user, "spec"),
              StatusIs(kInvalid, HasSubstr("spec.config_json.vision_config.model_type")));
  user.pairing = Pairing::kHalfSplit;
  const auto vision = ChooseSection(root, user, "spec");
  ASSERT_THAT(vision, IsOk());
  EXPECT_EQ(vision->known, nullptr);
  EXPECT_THAT(ChooseSection(Json::parse("[]"), Spec(), "spec"),
              StatusIs(kInvalid, HasSubstr("spec.config_json: ")));
}

// With `pairing` alone they would be read as models of one axis, or of heads of one shape.
TEST(ConfigSectionTest, APartThatIsACompositeModelMeansItsLanguageModel) {
  const Json root = Json::parse(R"({"model_type": "colpali", "vlm_config": {
      "model_type": "paligemma", "text_config": {"model_type": "gemma"}}})");
  const auto text = ChooseSection(root, Part("", "vlm_config"), "spec");
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(text->model().model_type, "gemma");
  EXPECT_EQ(text->in.path(), "spec.config_json.vlm_config.text_config");
  const Json frame = Json::parse(R"({"thinker": {"model_type": "qwen2_5_omni_thinker"}})");
  EXPECT_THAT(ChooseSection(frame, Part("", "thinker"), "spec"),
              StatusIs(kInvalid, HasSubstr("sub_config: thinker; must be one of thinker.")));
}

TEST(ConfigSectionTest, AModelThatNeedsItsOwnFieldsIsRefusedWithPairingToo) {
  for (const char* type : {"sam2_video", "dinov3_vit", "dots3_note_text", "llama4_vision_model"}) {
    const Json root = {{"model_type", type}, {"hidden_size", 256}, {"num_attention_heads", 4}};
    Spec user;
    for (const auto pairing : {std::optional<Pairing>(), std::optional(Pairing::kInterleaved)}) {
      user.pairing = pairing;
      EXPECT_THAT(ChooseSection(root, user, "spec"),
                  StatusIs(kInvalid, HasSubstr("leave config_json out")))
          << type;
    }
  }
}

}  // namespace
}  // namespace phasor
