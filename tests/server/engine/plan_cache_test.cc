// SPDX-License-Identifier: Apache-2.0
// Tests the plan cache: one compilation per spec, and eviction of the least recently used.
#include "server/engine/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

namespace phasor::engine {
namespace {

ResolvedSpec SpecOfDim(int64_t dim) {
  ResolvedSpec spec;
  spec.dim = dim;
  return spec;
}

constexpr int64_t kMany = 1 << 20;  // bytes of more plans than a test makes

// What a plan of CountingCompiler counts as.
int64_t OnePlan() { return PlanCache::BytesKept(SpecOfDim(2), Plan()); }

// Counts compilations by dim.
class CountingCompiler {
 public:
  PlanCache::Compiler compile() {
    return [this](const ResolvedSpec& spec) -> PlanOr {
      ++compiled_[spec.dim];
      auto plan = std::make_shared<Plan>();
      plan->spec = spec;
      return plan;
    };
  }
  int compiled(int64_t dim) { return compiled_[dim]; }

 private:
  std::map<int64_t, int> compiled_;
};

TEST(PlanCacheTest, CompilesASpecOnce) {
  CountingCompiler compiler;
  PlanCache cache(kMany, compiler.compile());
  const PlanOr first = cache.Get(SpecOfDim(8));
  const PlanOr second = cache.Get(SpecOfDim(8));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ((*first)->spec.dim, 8);
  EXPECT_EQ(compiler.compiled(8), 1);
  EXPECT_EQ(cache.hits(), 1);
  EXPECT_EQ(cache.misses(), 1);
}

TEST(PlanCacheTest, DropsTheLeastRecentlyUsed) {
  CountingCompiler compiler;
  PlanCache cache(2 * OnePlan(), compiler.compile());
  (void)cache.Get(SpecOfDim(2));
  (void)cache.Get(SpecOfDim(4));
  (void)cache.Get(SpecOfDim(2));
  (void)cache.Get(SpecOfDim(6));  // drops 4
  (void)cache.Get(SpecOfDim(2));
  (void)cache.Get(SpecOfDim(4));
  EXPECT_EQ(compiler.compiled(2), 1);
  EXPECT_EQ(compiler.compiled(4), 2);
}

TEST(PlanCacheTest, KeepsBytesNotPlans) {
  constexpr int64_t kMaxBytes = 4 << 20;
  PlanCache cache(kMaxBytes);
  ResolvedSpec narrow, wide;
  narrow = *ResolveSpec({.preset = "transformer", .dim = 64});
  for (int64_t dim = 65000; dim < 65032; dim += 2) {
    wide = *ResolveSpec({.preset = "transformer", .dim = dim});
    ASSERT_TRUE(cache.Get(narrow).ok());
    ASSERT_TRUE(cache.Get(wide).ok());
    EXPECT_LE(cache.bytes(), kMaxBytes);
  }
  EXPECT_GT(cache.bytes(), kMaxBytes / 2);
  EXPECT_EQ(cache.hits(), 15) << "the narrow one was in use and stayed";
}

TEST(PlanCacheTest, APlanLargerThanTheCacheIsUsedAndNotKept) {
  CountingCompiler compiler;
  PlanCache cache(OnePlan() - 1, compiler.compile());
  EXPECT_TRUE(cache.Get(SpecOfDim(2)).ok());
  EXPECT_TRUE(cache.Get(SpecOfDim(2)).ok());
  EXPECT_EQ(compiler.compiled(2), 2);
  EXPECT_EQ(cache.bytes(), 0);
}

TEST(PlanCacheTest, DroppedPlanStaysValidForItsUsers) {
  CountingCompiler compiler;
  PlanCache cache(OnePlan(), compiler.compile());
  const PlanOr plan = cache.Get(SpecOfDim(2));
  (void)cache.Get(SpecOfDim(4));
  EXPECT_EQ((*plan)->spec.dim, 2);
}

TEST(PlanCacheTest, DoesNotKeepErrors) {
  int calls = 0;
  PlanCache cache(kMany, [&calls](const ResolvedSpec&) -> PlanOr {
    if (++calls == 1) return absl::InvalidArgumentError("spec: no");
    return std::make_shared<Plan>();
  });
  EXPECT_EQ(cache.Get(SpecOfDim(2)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(cache.Get(SpecOfDim(2)).ok());
}

TEST(PlanCacheTest, ConcurrentMissesOfOneSpecCompileOnce) {
  constexpr int kThreads = 8;
  std::atomic<int> compiled = 0;
  Mutex mu;
  CondVar changed;
  bool go = false;
  PlanCache cache(kMany, [&](const ResolvedSpec&) -> PlanOr {
    ++compiled;
    MutexLock lock(&mu);
    while (!go) changed.Wait(&mu);
    return std::make_shared<Plan>();
  });
  std::vector<PlanOr> plans(kThreads, absl::UnknownError("unset"));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { plans[t] = cache.Get(SpecOfDim(2)); });
  }
  while (cache.hits() + cache.misses() < kThreads) std::this_thread::yield();
  {
    MutexLock lock(&mu);
    go = true;
    changed.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled, 1);
  for (const PlanOr& plan : plans) {
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(*plan, *plans[0]);
  }
}

TEST(PlanCacheTest, OtherSpecsDoNotWaitForACompilation) {
  Mutex mu;
  CondVar changed;
  bool go = false;
  bool started = false;
  PlanCache cache(kMany, [&](const ResolvedSpec& spec) -> PlanOr {
    MutexLock lock(&mu);
    if (spec.dim == 2) {
      started = true;
      changed.SignalAll();
      while (!go) changed.Wait(&mu);
    }
    return std::make_shared<Plan>();
  });
  std::thread slow([&] { EXPECT_TRUE(cache.Get(SpecOfDim(2)).ok()); });
  {
    MutexLock lock(&mu);
    while (!started) changed.Wait(&mu);
  }
  EXPECT_TRUE(cache.Get(SpecOfDim(4)).ok());
  {
    MutexLock lock(&mu);
    go = true;
    changed.SignalAll();
  }
  slow.join();
}

}  // namespace
}  // namespace phasor::engine
