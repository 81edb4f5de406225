// SPDX-License-Identifier: Apache-2.0
// Counts the cost of the plans of one message.
#include "server/engine/plan_budget.h"

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::engine {
namespace {

constexpr int64_t kParityFactor = 16;

int64_t CostOf(const ResolvedSpec& spec, const Plan& plan) {
  const int64_t pairs = plan.heads * plan.head_pairs();
  return spec.precision == Precision::kParity ? pairs * kParityFactor : pairs;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Plan>> PlanBudget::Get(const ResolvedSpec& spec,
                                                            PlanProvider plans) {
  const bool known = (first_ != nullptr && first_->spec == spec) || seen_.contains(spec);
  if (!known && cost_ >= kMaxPlanCost) {
    return absl::ResourceExhaustedError(StrCat("spec: the different specs before this one have ",
                                               cost_, " pairs, a message must ", "have at most ",
                                               kMaxPlanCost, "; split it"));
  }
  PHASOR_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, plans(spec));
  if (!known) {
    if (first_ == nullptr) {
      first_ = plan;
    } else {
      seen_.insert(spec);
    }
    cost_ += CostOf(spec, *plan);
    if (const int64_t bytes = BytesOf(*plan); bytes > kSmallPlanBytes) large_bytes_ += bytes;
  }
  return plan;
}

}  // namespace phasor::engine
