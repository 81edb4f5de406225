// SPDX-License-Identifier: Apache-2.0
// Layers whose specs follow from a model's file move as with specs of their own.
#include "kernels/request/move_specs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/plan/plan.h"
#include "kernels/spec/model_layers.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::StatusIs;

constexpr char kGemma3[] = R"({"model_type": "gemma3_text", "num_hidden_layers": 8, "head_dim": 64,
    "rope_scaling": {"rope_type": "linear", "factor": 8}})";
constexpr char kLlama4[] = R"({"model_type": "llama4_text", "num_hidden_layers": 8, "head_dim": 64,
    "rope_scaling": {"rope_type": "llama3", "factor": 16, "low_freq_factor": 1,
                     "high_freq_factor": 1, "original_max_position_embeddings": 8192}})";
constexpr char kSmolLm3[] = R"({"model_type": "smollm3", "num_hidden_layers": 8, "head_dim": 64})";
constexpr char kCohere2[] = R"({"model_type": "cohere2", "num_hidden_layers": 8, "head_dim": 64})";

// A request with `layers` layers of that model, in order.
MoveRequest OfModel(const std::string& config, int64_t layers) {
  MoveRequest request;
  request.layouts = {{.pages = 1, .heads = 1, .head_dim = 64}};
  request.specs = {{.spec = {.config_json = config}}};
  for (int64_t i = 0; i < layers; ++i) request.layers.push_back({.spec = 0, .model_layer = i});
  return request;
}

absl::StatusOr<MoveSpecs> SpecsOfMove(const MoveRequest& request) {
  return PrepareMoveSpecs(request, CompilePlan, "item");
}

void RefusesSpecs(const MoveRequest& request, const std::string& message) {
  EXPECT_THAT(SpecsOfMove(request), StatusIs(kInvalid, HasSubstr(message)));
}

TEST(MoveSpecsTest, LayersOfAModelTurnAsThoseWithSpecsOfTheirOwn) {
  for (const char* const config : {kGemma3, kLlama4, kSmolLm3, kCohere2}) {
    SCOPED_TRACE(config);
    const auto model = SpecsOfMove(OfModel(config, 8));
    ASSERT_THAT(model, IsOk());
    int turned = 0;
    for (int64_t i = 0; i < 8; ++i) {
      MoveRequest one = OfModel(config, 1);
      one.layers[0].model_layer.reset();
      one.specs[0].spec.layer_type = std::to_string(i);
      const auto alone = SpecsOfMove(one);
      const LayerTurn& turn = model->layers[static_cast<size_t>(i)];
      if (turn.plan == nullptr) {
        EXPECT_THAT(alone, StatusIs(kInvalid, HasSubstr("does not rotate")));
        continue;
      }
      ++turned;
      ASSERT_THAT(alone, IsOk());
      EXPECT_EQ(turn.plan->fingerprint, alone->specs[0].fingerprint);
      EXPECT_EQ(turn.from_plan, turn.plan);
    }
    EXPECT_EQ(turned, config == kGemma3 ? 8 : 6);
  }
}

TEST(MoveSpecsTest, LayersThatAreAlikeShareAPlan) {
  const auto model = SpecsOfMove(OfModel(kGemma3, 8));
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->layers[0].plan, model->layers[7].plan);
  EXPECT_NE(model->layers[0].plan, model->layers[5].plan);
}

TEST(MoveSpecsTest, TheModelsFingerprintIsThePin) {
  MoveRequest request = OfModel(kGemma3, 1);
  request.specs[0].fingerprint = ResolveModel(request.specs[0].spec)->parts[0].fingerprint;
  const auto pinned = SpecsOfMove(request);
  ASSERT_THAT(pinned, IsOk());
  EXPECT_EQ(pinned->specs[0].fingerprint, request.specs[0].fingerprint);
  request.specs[0].fingerprint = pinned->layers[0].plan->fingerprint;
  EXPECT_THAT(SpecsOfMove(request), StatusIs(absl::StatusCode::kFailedPrecondition,
                                             HasSubstr("item.specs[0].fingerprint: ")));
}

TEST(MoveSpecsTest, FromSpecIsOfTheSameLayerOrOfAllThatRotate) {
  MoveRequest request = OfModel(kCohere2, 4);
  request.specs[0].from_spec = Spec{.config_json = kCohere2, .rope_theta = 77.0};
  auto model = SpecsOfMove(request);
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->layers[0].from_plan->spec.rope_theta, 77);
  EXPECT_EQ(model->layers[0].plan->spec.rope_theta, 10000);
  EXPECT_EQ(model->layers[3].plan, nullptr);
  EXPECT_NE(model->specs[0].fingerprint, model->specs[0].from_fingerprint);

  request.specs[0].from_spec = Spec{.preset = "llama-2", .head_dim = 64};
  model = SpecsOfMove(request);
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->layers[0].from_plan->fingerprint, model->specs[0].from_fingerprint);
  EXPECT_EQ(model->layers[3].plan, nullptr);

  request.specs[0].from_spec = Spec{.config_json = kSmolLm3};
  EXPECT_THAT(SpecsOfMove(request), IsOk());
  request.specs[0].from_spec = Spec{.config_json = kGemma3};
  RefusesSpecs(request, "item.layers[3].model_layer: 3 rotates in from_spec only; must in both");
}

// HunYuan: the cached key is a norm of the rotated one, lane by lane.
TEST(MoveSpecsTest, KeysThatAreNormedAfterTheyTurnDoNotMove) {
  for (const std::string type : {"hunyuan_v1_dense", "hunyuan_v1_moe"}) {
    const std::string config = R"({"model_type": ")" + type + R"(", "num_hidden_layers": 2,
        "head_dim": 64})";
    MoveRequest request = OfModel(config, 2);
    RefusesSpecs(request, "item.specs[0].spec.config_json.model_type: " + type + ", which norms");
    for (KeyLayer& layer : request.layers) layer.model_layer.reset();
    RefusesSpecs(request, "item.specs[0].spec.config_json.model_type: " + type + ", which norms");
    request.specs[0].from_spec = request.specs[0].spec;
    request.specs[0].spec = {.preset = "rope-half-split", .head_dim = 64};
    RefusesSpecs(request, "item.specs[0].from_spec.config_json.model_type: " + type);
  }
  // The name of a type elsewhere in a file says nothing.
  MoveRequest request = OfModel(R"({"model_type": "llama", "num_hidden_layers": 1, "head_dim": 64,
      "_name_or_path": "not-hunyuan_v1_dense"})",
                                1);
  EXPECT_THAT(SpecsOfMove(request), IsOk());
}

TEST(MoveSpecsTest, WhatDoesNotFitIsRefusedWithItsField) {
  MoveRequest request = OfModel(kGemma3, 2);
  request.layers[1].model_layer = 8;
  RefusesSpecs(request, "item.layers[1].model_layer: 8; must be in [0, 8)");
  request.layers[1].model_layer.reset();
  RefusesSpecs(request, "item.layers[1].model_layer: not set, unlike item.layers[0]");
  request.layers[1] = {.model_layer = 1};
  RefusesSpecs(request, "item.layers[1].model_layer: set without spec");
  request = OfModel(kGemma3, 2);
  request.specs[0].spec = {.preset = "llama-2"};
  RefusesSpecs(request, "item.specs[0].spec.config_json: not set");
  request = OfModel(kGemma3, 2);
  request.specs[0].spec.layer_type = "full_attention";
  RefusesSpecs(request, "item.specs[0].spec.layer_type: set");
  request = OfModel(R"({"model_type": "no-such"})", 1);
  RefusesSpecs(request, "item.specs[0].spec.config_json.model_type: \"no-such\"");
}

}  // namespace
}  // namespace phasor
