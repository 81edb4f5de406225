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

PlanCache::PlanCache(int64_t max_bytes, Compiler compile)
    : max_bytes_(max_bytes), compile_(std::move(compile)) {}

int64_t PlanCache::BytesKept(const ResolvedSpec& spec, const Plan& plan) {
  // The spec is also in the entry and its key. The rest is for the nodes of list and map.
  constexpr int64_t kNodes = 128;
  return BytesOf(plan) + 2 * BytesOf(spec) + kNodes;
}

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
  const int64_t bytes = BytesKept(spec, *plan);
  if (bytes > max_bytes_) return;
  int64_t kept = bytes_.load(std::memory_order_relaxed) + bytes;
  for (; kept > max_bytes_; entries_.pop_back()) {
    kept -= entries_.back().bytes;
    by_spec_.erase(entries_.back().spec);
  }
  entries_.push_front({spec, std::move(plan), bytes});
  by_spec_[spec] = entries_.begin();
  bytes_.store(kept, std::memory_order_relaxed);
}

}  // namespace phasor::engine
