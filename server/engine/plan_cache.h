// SPDX-License-Identifier: Apache-2.0
// A cache of plans by spec, bounded in bytes. The least recently used plan is dropped first.
#ifndef PHASOR_SERVER_ENGINE_PLAN_CACHE_H_
#define PHASOR_SERVER_ENGINE_PLAN_CACHE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/spec.h"
#include "server/base/mutex.h"

namespace phasor::engine {

using PlanOr = absl::StatusOr<std::shared_ptr<const Plan>>;

// The cache. Owns a reference to each cached plan; a plan in use outlives its eviction. Threads:
// any.
class PlanCache {
 public:
  using Compiler = std::function<PlanOr(const ResolvedSpec&)>;

  // Keeps plans of at most `max_bytes` >= 0. A plan that is larger is not kept.
  explicit PlanCache(int64_t max_bytes, Compiler compile = CompilePlan);

  // What a plan counts as while it is kept.
  static int64_t BytesKept(const ResolvedSpec& spec, const Plan& plan);

  // The plan of `spec`. Callers that miss the same spec at once wait for a single compilation.
  // Errors are the compiler's and are not cached.
  PlanOr Get(const ResolvedSpec& spec);

  // Counts plans that a caller still had from Get and need not ask for again.
  void CountHits(int64_t plans) {
    if (plans > 0) hits_.fetch_add(plans, std::memory_order_relaxed);
  }
  // A call that waits for another one's compilation counts as a hit.
  int64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  int64_t misses() const { return misses_.load(std::memory_order_relaxed); }
  // The memory of the plans that are kept.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Compilation;
  struct Entry {
    ResolvedSpec spec;
    std::shared_ptr<const Plan> plan;
    int64_t bytes;
  };
  using Entries = std::list<Entry>;

  void Keep(const ResolvedSpec& spec, std::shared_ptr<const Plan> plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_bytes_;
  const Compiler compile_;
  std::atomic<int64_t> hits_ = 0;
  std::atomic<int64_t> misses_ = 0;
  std::atomic<int64_t> bytes_ = 0;  // written under mu_
  Mutex mu_;
  CondVar compiled_;
  Entries entries_ ABSL_GUARDED_BY(mu_);  // most recently used first
  absl::flat_hash_map<ResolvedSpec, Entries::iterator> by_spec_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<ResolvedSpec, std::shared_ptr<Compilation>> running_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_PLAN_CACHE_H_
