// SPDX-License-Identifier: Apache-2.0
// Tests that models convert to the wire and back.
#include "proto/convert_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::StatusIs;

ModelDetails Full() {
  ModelDetails details;
  details.specs = {{.spec = {.kind = SpecKind::kRotary, .head_dim = 64},
                    .fingerprint = "a",
                    .amplitude = 1.5,
                    .width = 64},
                   {.spec = {.preset = "llama-2"}, .fingerprint = "b", .amplitude = 1, .width = 2}};
  details.parts = {{.sub_config = "",
                    .model_type = "gemma3_text",
                    .layers = {{"full_attention", 0}, {"sliding_attention", 1}, {"none", {}}},
                    .fingerprint = "c"},
                   {.sub_config = "vision_config", .error = "not known"}};
  return details;
}

TEST(ConvertModelTest, EveryFieldArrives) {
  const auto back = ModelDetailsFromWire(ToWire(Full()));
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(back->specs, Full().specs);
  EXPECT_EQ(back->parts, Full().parts);
}

TEST(ConvertModelTest, AnAnswerThatDoesNotFitIsRefused) {
  for (const int64_t index : {int64_t{-1}, int64_t{2}}) {
    v1::ResolveModelResponse wire = ToWire(Full());
    wire.mutable_parts(0)->mutable_layers(0)->set_spec(index);
    EXPECT_THAT(ModelDetailsFromWire(wire),
                StatusIs(kInvalid, HasSubstr("must be an index of specs")));
  }
  v1::ResolveModelResponse wire = ToWire(Full());
  wire.mutable_specs(1)->mutable_spec()->set_pairing(static_cast<v1::Pairing>(99));
  EXPECT_THAT(ModelDetailsFromWire(wire), StatusIs(kInvalid, HasSubstr("specs[1].spec.pairing")));
}

}  // namespace
}  // namespace phasor
