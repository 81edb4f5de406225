// SPDX-License-Identifier: Apache-2.0
// Tests which axes turn which pairs, by model.
#include "kernels/spec/config_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/spec/configurations.h"

namespace phasor {
namespace {

using testing::Config;
using testing::ExpectRefused;
using testing::Read;

TEST(ConfigAxesTest, ImageModelsShareTheHeadAmongAxes) {
  const Spec spec = Read(Config(R"({"model_type": "pixtral", "head_dim": 64})"));
  EXPECT_EQ(spec.axes, 2);
  EXPECT_FALSE(spec.mrope_section.size() > 0);
}

// 80 lanes, of which three axes have 26 each.
TEST(ConfigAxesTest, LanesThatAxesDoNotShareStay) {
  const Spec spec = Read(Config(R"({"model_type": "minimax_m3_vl_vision"})"));
  EXPECT_EQ(spec.head_dim, 80);
  EXPECT_EQ(spec.axes, 3);
  EXPECT_EQ(spec.rotary_dim, 78);
}

// Pixtral deals one ladder out to its axes, so that the second is slower by a step of it.
TEST(ConfigAxesTest, StepsBetweenAxesFollowTheUsersBaseAndWidth) {
  const auto step = [](const std::string& keys, Spec user) {
    user.config_json = R"({"model_type": "pixtral", "head_dim": 64)" + keys + "}";
    return Read(user).axes_position_scale;
  };
  const auto by_file = step(R"(, "rope_theta": 100.0)", {});
  EXPECT_THAT(by_file, ::testing::ElementsAre(1, ::testing::DoubleNear(0.8660, 1e-4)));
  EXPECT_EQ(step("", {.rope_theta = 100.0}), by_file);
  const std::vector<double> narrow = {1, std::pow(1e4, -2.0 / 32)};
  EXPECT_EQ(step("", {.rotary_dim = 32}), narrow);
  EXPECT_EQ(step("", {.partial_rotary_factor = 0.5}), narrow);
}

TEST(ConfigAxesTest, SectionsOfAFileReplaceThoseOfTheClass) {
  const std::string model = R"({"model_type": "glm4v_text", "head_dim": 128)";
  EXPECT_THAT(Read(Config(model + "}")).mrope_section, ::testing::ElementsAre(8, 12, 12));
  EXPECT_THAT(Read(Config(model + R"(, "rope_parameters": {"mrope_section": [12, 10, 10]}})"))
                  .mrope_section,
              ::testing::ElementsAre(12, 10, 10));
}

TEST(ConfigAxesTest, SectionsThatTheModelDoesNotReadAreRefused) {
  ExpectRefused(Config(R"({"model_type": "llama", "head_dim": 64,
                           "rope_scaling": {"mrope_section": [8, 12, 12]}})"),
                "rope_parameters.mrope_section: model_type llama has one axis");
}

}  // namespace
}  // namespace phasor
