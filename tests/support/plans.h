// SPDX-License-Identifier: Apache-2.0
// Valid plans and positions.
#ifndef PHASOR_TESTS_SUPPORT_PLANS_H_
#define PHASOR_TESTS_SUPPORT_PLANS_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "kernels/plan/plan.h"
#include "kernels/tensor/positions.h"
#include "tests/support/specs.h"

namespace phasor::testing {

inline std::shared_ptr<const Plan> PlanOf(const Spec& spec) {
  auto plan = CompilePlan(Resolve(spec));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

inline PositionSource SourceOf(const Positions& positions, int axes = 1) {
  auto source = MakePositionSource(positions, axes, "positions");
  EXPECT_TRUE(source.ok()) << source.status();
  return *std::move(source);
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_PLANS_H_
