// SPDX-License-Identifier: Apache-2.0
// Tests what is listed of the specs of a model.
#include "kernels/plan/model_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/plan/plan.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::StatusIs;

TEST(ModelDetailsTest, SpecsAreWholeAndHaveTheirPlansNumbers) {
  const auto model = DetailsOfModel({.config_json = R"({"model_type": "llama", "head_dim": 64,
      "num_hidden_layers": 2, "rope_scaling": {"rope_type": "yarn", "factor": 4,
      "original_max_position_embeddings": 4096}})"});
  ASSERT_THAT(model, IsOk());
  ASSERT_EQ(model->specs.size(), 1u);
  const ModelSpec& spec = model->specs[0];
  const auto plan = CompilePlan(*ResolveSpec(spec.spec));
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(spec.fingerprint, (*plan)->fingerprint);
  EXPECT_EQ(spec.amplitude, (*plan)->amplitude);
  EXPECT_GT(spec.amplitude, 1);
  EXPECT_EQ(spec.width, 64);
  EXPECT_EQ(model->parts[0].layers.size(), 2u);
}

TEST(ModelDetailsTest, RefusesAnAmplitudeThatIsNoFloat) {
  EXPECT_THAT(DetailsOfModel({.config_json = R"({"model_type": "llama", "head_dim": 64})",
                              .attention_factor = 1e300}),
              StatusIs(kInvalid, HasSubstr("amplitude")));
}

}  // namespace
}  // namespace phasor
