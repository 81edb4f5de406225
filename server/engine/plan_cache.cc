// SPDX-License-Identifier: Apache-2.0
// A cache of plans: a list in order of use, a map to its entries, and the running compilations.
#include "server/engine/plan_cache.h"

#include <optional>
#include <utility>

namespace phasor::engine {

// A running compilation. `plan` is set when it is done.
struct PlanCache::Compilation {
  std::optional<PlanOr> plan;
};

PlanCache::PlanCache(int64_t capacity, Compiler compile)
    : capacity_(static_cast<size_t>(capacity)), compile_(std::move(compile)) {}

PlanOr PlanCache::Get(const ResolvedSpec& spec) {
  std::shared_ptr<Compilation> compilation;
  {
    MutexLock lock(&mu_);
    if (const auto kept = by_spec_.find(spec); kept != by_spec_.end()) {
      hits_.fetch_add(1, std::memory_order_relaxed);
      entries_.splice(entries_.begin(), entries_, kept->second);
      return kept->second->plan;
    }
    if (const auto running = running_.find(spec); running != running_.end()) {
      hits_.fetch_add(1, std::memory_order_relaxed);
      compilation = running->second;
      while (!compilation->plan.has_value()) compiled_.Wait(&mu_);
      return *compilation->plan;
    }
    misses_.fetch_add(1, std::memory_order_relaxed);
    compilation = std::make_shared<Compilation>();
    running_.emplace(spec, compilation);
  }
  PlanOr plan = compile_(spec);
  MutexLock lock(&mu_);
  running_.erase(spec);
  if (plan.ok()) Keep(spec, *plan);
  compilation->plan = plan;
  compiled_.SignalAll();
  return plan;
}

void PlanCache::Keep(const ResolvedSpec& spec, std::shared_ptr<const Plan> plan) {
  entries_.push_front({spec, std::move(plan)});
  by_spec_[spec] = entries_.begin();
  if (entries_.size() <= capacity_) return;
  by_spec_.erase(entries_.back().spec);
  entries_.pop_back();
}

}  // namespace phasor::engine
