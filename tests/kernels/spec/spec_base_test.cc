// SPDX-License-Identifier: Apache-2.0
// Bases of specs: presets, configurations, and the errors of a wrong base.
#include "kernels/spec/spec_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr char kLlama[] = R"({"model_type": "llama", "head_dim": 128, "rope_theta": 500000.0})";

void ExpectRefused(const Spec& user, absl::StatusCode code, const std::string& message) {
  EXPECT_THAT(WithBase(user, "item.spec"), StatusIs(code, StartsWith(message)));
}

TEST(SpecBaseTest, FieldsOverrideThePreset) {
  const auto spec = WithBase({.preset = "llama-2", .rope_theta = 7.0}, "spec");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(spec->rope_theta, 7.0);
  EXPECT_EQ(spec->head_dim, 128);
}

TEST(SpecBaseTest, FieldsOverrideTheConfiguration) {
  Spec user = {.config_json = kLlama};
  user.pairing = Pairing::kInterleaved;
  const auto spec = WithBase(user, "spec");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(spec->rope_theta, 500000.0);
  EXPECT_EQ(spec->pairing, Pairing::kInterleaved);
  EXPECT_EQ(spec->pairing_out, std::nullopt);  // follows the pairing that the user gave
}

TEST(SpecBaseTest, AConfigurationResolvesToTheSpecThatItDescribes) {
  const auto by_config = ResolveSpec({.config_json = kLlama});
  const auto by_preset = ResolveSpec({.preset = "llama-3"});
  ASSERT_THAT(by_config, IsOk());
  ASSERT_THAT(by_preset, IsOk());
  EXPECT_EQ(Fingerprint(*by_config), Fingerprint(*by_preset));
}

TEST(SpecBaseTest, ThereIsAtMostOneBase) {
  ExpectRefused({.preset = "llama-2", .config_json = kLlama}, absl::StatusCode::kInvalidArgument,
                "item.spec.preset: more than one base");
}

TEST(SpecBaseTest, UnknownNamesAreNotFound) {
  ExpectRefused({.preset = "llama-9"}, absl::StatusCode::kNotFound,
                "item.spec.preset: no preset named \"llama-9\"");
  ExpectRefused({.encoder = "mine"}, absl::StatusCode::kNotFound,
                "item.spec.encoder: no encoder named \"mine\"");
}

TEST(SpecBaseTest, PartsAndKindsOfLayersNeedAConfiguration) {
  Spec user = {.preset = "llama-2"};
  user.layer_type = "full_attention";
  ExpectRefused(user, absl::StatusCode::kInvalidArgument,
                "item.spec.layer_type: set without config_json");
  user.layer_type.reset();
  user.sub_config = "vision_config";
  ExpectRefused(user, absl::StatusCode::kInvalidArgument,
                "item.spec.sub_config: set without config_json");
}

TEST(SpecBaseTest, ErrorsOfTheConfigurationKeepTheirPath) {
  ExpectRefused({.config_json = "{}"}, absl::StatusCode::kInvalidArgument,
                "item.spec.config_json.model_type: not set");
}

}  // namespace
}  // namespace phasor
