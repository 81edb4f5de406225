// SPDX-License-Identifier: Apache-2.0
// Limits how many plans one message can cause: they are compiled before the message is admitted.
#ifndef PHASOR_SERVER_ENGINE_PLAN_BUDGET_H_
#define PHASOR_SERVER_ENGINE_PLAN_BUDGET_H_

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/spec.h"

namespace phasor::engine {

// Most pairs of all plans of one message together. A pair of a PARITY plan counts 16 times, because
// it takes 16 times as long. Allows 128 different specs of 4096 columns, or 8 of the widest.
inline constexpr int64_t kMaxPlanCost = int64_t{1} << 18;
// Smaller plans do not count in large_bytes(): an item with its message needs as much.
inline constexpr int64_t kSmallPlanBytes = 32 << 10;

// The budget of one message. Threads: one.
class PlanBudget {
 public:
  using PlanProvider =
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<const Plan>>(const ResolvedSpec&)>;

  // The plan of `spec` from `plans`, with its errors. A plan counts once per message.
  // RESOURCE_EXHAUSTED: earlier plans have used up the budget.
  absl::StatusOr<std::shared_ptr<const Plan>> Get(const ResolvedSpec& spec, PlanProvider plans);
  // The memory of the large plans so far, which the message counts as its own: it keeps them for as
  // long as it waits, whether or not the plan cache still has room for them.
  int64_t large_bytes() const { return large_bytes_; }

 private:
  std::shared_ptr<const Plan> first_;       // most messages have one spec: hashing it costs more
  absl::flat_hash_set<ResolvedSpec> seen_;  // the others
  int64_t cost_ = 0;
  int64_t large_bytes_ = 0;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_PLAN_BUDGET_H_
