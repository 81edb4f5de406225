// SPDX-License-Identifier: Apache-2.0
// Tests how many plans one message may cause.
#include "server/engine/plan_budget.h"

#include <gtest/gtest.h>

#include "kernels/plan/plan.h"
#include "tests/support/specs.h"

namespace phasor::engine {
namespace {

// How many different specs of `spec`'s width fit into one message.
int64_t Fit(Spec spec) {
  PlanBudget budget;
  int64_t fit = 0;
  for (int i = 0; i < 1000; ++i) {
    spec.rope_theta = 10001 + i;
    const auto plan = budget.Get(testing::Resolve(spec), CompilePlan);
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
      return fit;
    }
    ++fit;
  }
  return fit;
}

TEST(PlanBudgetTest, ManyNarrowSpecsFitAndFewWideOnes) {
  EXPECT_EQ(Fit(testing::Rotary(128)), 1000);
  EXPECT_EQ(Fit(testing::Encoding(65536)), 8);
}

TEST(PlanBudgetTest, PlansOfParityCountForWhatTheyTake) {
  Spec spec = testing::Encoding(8192);
  EXPECT_EQ(Fit(spec), 64);
  spec.precision = Precision::kParity;
  EXPECT_EQ(Fit(spec), 4);
}

TEST(PlanBudgetTest, TheSameSpecCountsOnce) {
  PlanBudget budget;
  const ResolvedSpec wide = testing::Resolve(testing::Encoding(65536));
  const auto plan = CompilePlan(wide);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(budget.Get(wide, [&](const ResolvedSpec&) { return plan; }).ok());
  }
}

TEST(PlanBudgetTest, LargePlansCountAsBytesOfTheMessage) {
  PlanBudget budget;
  ASSERT_TRUE(budget.Get(testing::Resolve(testing::Rotary(128)), CompilePlan).ok());
  EXPECT_EQ(budget.large_bytes(), 0);
  const auto plan = budget.Get(testing::Resolve(testing::Encoding(65536)), CompilePlan);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(budget.large_bytes(), BytesOf(**plan));
  EXPECT_GT(budget.large_bytes(), 1 << 20);
}

}  // namespace
}  // namespace phasor::engine
