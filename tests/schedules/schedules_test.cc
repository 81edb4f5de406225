// SPDX-License-Identifier: Apache-2.0
// A few threads use one engine, or stores of regions and leases, or a pool of threads; then all
// that they may have left behind is checked. Each time everything is made anew: one time is a
// schedule. tests/schedules/run.py runs this with yields.c, which changes the order of the threads
// at random.
//
// PHASOR_SCHEDULES sets how many schedules each test tries, 20 by default; PHASOR_SCHEDULE_SEED the
// first seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/spec/spec.h"
#include "server/base/clock.h"
#include "server/engine/engine.h"
#include "server/memory/device_region_store.h"
#include "server/memory/lease_store.h"
#include "server/memory/region_store.h"
#include "tests/support/device_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/memfd.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_call.h"

namespace phasor {
namespace {

using ::testing::AnyOf;
using Code = absl::StatusCode;
using Random = std::mt19937_64;

constexpr int kThreads = 4;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Calls `schedule` with a random generator of its own, as often as wanted.
void ForEachSchedule(const std::function<void(Random&)>& schedule) {
  const uint64_t schedules = FromEnvironment("PHASOR_SCHEDULES", 20);
  const uint64_t seed = FromEnvironment("PHASOR_SCHEDULE_SEED", 1);
  for (uint64_t i = 0; i < schedules && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(seed + i);
    Random random(seed + i);
    schedule(random);
  }
}

// Runs `work` on several threads at once, each with its number and a generator of its own.
void OnThreads(Random& random, const std::function<void(int, Random&)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&work, t, own = Random(random())]() mutable { work(t, own); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Engine ----------------------------------------------------------------------------------------

// What a thread does with an engine: calls of several sizes, some of which are cancelled or late.
class EngineUser {
 public:
  EngineUser(engine::Engine* engine, int thread) : engine_(*engine), thread_(thread) {}

  void Work(Random& random) {
    for (int i = 0; i < 3; ++i) {
      Submit(random);
      if (random() % 4 == 0) answers_.back()->Cancel();
      if (random() % 4 == 0) engine_.SetMaxInflightBytes(64 + static_cast<int64_t>(random() % 200));
      if (random() % 4 == 0) {
        const auto permit = engine_.MayParse(64, absl::InfiniteFuture(), [] { return false; });
        EXPECT_THAT(permit.status().code(),
                    AnyOf(Code::kOk, Code::kUnavailable, Code::kResourceExhausted));
      }
    }
    // In any order: an answer that is kept holds room that an earlier call may wait for.
    for (size_t left = answers_.size(); left > 0; std::this_thread::yield()) {
      for (size_t i = 0; i < answers_.size(); ++i) {
        if (answers_[i] == nullptr || !answers_[i]->answered()) continue;
        Check(*answers_[i], *texts_[i]);
        answers_[i] = nullptr;
        --left;
      }
    }
    if (thread_ == 0) {
      EXPECT_TRUE(engine_.Drain(absl::InfiniteFuture()));
    }
  }

 private:
  void Submit(Random& random) {
    auto& text = texts_.emplace_back(std::make_unique<std::string>(4 * (1 + random() % 12), 'x'));
    const auto answer = answers_.emplace_back(std::make_shared<engine::Answer>());
    auto call = engine::BytesCall(answer, *text, 3, static_cast<uint64_t>(thread_ % 2));
    call->waits_for_room = random() % 2 == 0;
    if (random() % 4 == 0) call->deadline = SteadyNow() + absl::Microseconds(random() % 200);
    engine_.Submit(std::move(call));
  }
  static void Check(engine::Answer& answer, const std::string& text) {
    const auto& result = answer.Wait();
    if (result.ok()) {
      EXPECT_EQ(engine::OutputOf(*result), engine::Inverted(text));
    } else {
      EXPECT_THAT(result.status().code(), AnyOf(Code::kUnavailable, Code::kResourceExhausted,
                                                Code::kDeadlineExceeded, Code::kCancelled));
    }
    EXPECT_EQ(answer.times_answered(), 1);
    EXPECT_LE(answer.times_released(), 1);
    answer.Forget();
  }

  engine::Engine& engine_;
  const int thread_;
  std::vector<std::unique_ptr<std::string>> texts_;
  std::vector<engine::AnswerRef> answers_;
};

TEST(SchedulesTest, OfAnEngine) {
  ForEachSchedule([](Random& random) {
    FakeBackend backend(random() % 2 == 0 ? BatchPolicy{} : BatchPolicy{.bytes = 100, .runs = 2});
    engine::EngineOptions options;
    options.workers = 1 + static_cast<int>(random() % 3);
    options.inline_bytes = static_cast<int64_t>(random() % 64);
    options.max_inflight_bytes = 64 + static_cast<int64_t>(random() % 200);
    options.pool_bytes = static_cast<int64_t>(random() % 200);
    engine::Engine engine(options, &backend, Clock::Real());
    OnThreads(random, [&](int thread, Random& own) { EngineUser(&engine, thread).Work(own); });
    EXPECT_TRUE(engine.Drain(absl::InfiniteFuture()));
    const engine::EngineStats stats = engine.stats();
    EXPECT_EQ(stats.inflight_bytes, 0);
    EXPECT_EQ(stats.queued_calls + stats.waiting_calls + stats.waiting_readers, 0);
  });
}

TEST(SchedulesTest, OfPlansThatSeveralThreadsCompile) {
  std::vector<ResolvedSpec> specs;
  for (const int64_t dim : {4, 6, 8})
    specs.push_back(*ResolveSpec({.preset = "transformer", .dim = dim}));
  ForEachSchedule([&](Random& random) {
    FakeBackend backend;
    engine::EngineOptions options;
    options.workers = 1;
    options.plan_cache_bytes = random() % 2 == 0 ? 1 << 20 : 600;
    engine::Engine engine(options, &backend, Clock::Real());
    OnThreads(random, [&](int, Random& own) {
      for (int i = 0; i < 6; ++i) {
        const ResolvedSpec& spec = specs[own() % specs.size()];
        const auto plan = engine.GetPlan(spec);
        ASSERT_THAT(plan, testing::IsOk());
        EXPECT_EQ((*plan)->spec.dim, spec.dim);
      }
    });
    const engine::EngineStats stats = engine.stats();
    EXPECT_EQ(stats.plan_cache_hits + stats.plan_cache_misses, 6 * kThreads);
    EXPECT_LE(stats.plan_cache_bytes, options.plan_cache_bytes);
  });
}

// Regions ---------------------------------------------------------------------------------------

// Names of regions that threads register, use and forget, in two stores that share them.
class Regions {
 public:
  void Work(int thread, Random& random) {
    const memory::RegionCaller caller = {absl::StrCat("peer ", thread % 2), ""};
    for (int i = 0; i < 6; ++i) {
      const std::string name(1, static_cast<char>('a' + random() % 4));
      switch (random() % 7) {
        case 0:
          Count(store_.Register(name, {memory_.key(), 0, 8}, caller, TermsOf(random)));
          break;
        case 1:
          Count(devices_.Register(name, {.handle = exported_->handle(), .bytes = 8}, caller,
                                  TermsOf(random), {}));
          break;
        case 2:
          Use(name, caller);
          break;
        case 3:
          UnregisterOne(store_, name, caller);
          break;
        case 4:
          UnregisterOne(devices_, name, caller);
          break;
        case 5:
          store_.ForgetConnection(caller.peer);
          devices_.ForgetConnection(caller.peer);
          break;
        default:
          EXPECT_LE(store_.List(caller).size() + devices_.List(caller).size(), 3u * 2);
          store_.stats();
      }
    }
  }

  // All regions can be forgotten, and nothing of them stays.
  void ExpectNothingStays() {
    for (const char* peer : {"peer 0", "peer 1"}) {
      store_.UnregisterAll({peer, ""});
      devices_.UnregisterAll({peer, ""});
    }
    EXPECT_EQ(store_.stats().pieces, 0);
    EXPECT_EQ(devices_.stats().pieces, 0);
    EXPECT_EQ(backend_.device().open_mappings(), 0);
    EXPECT_EQ(released_.load(), unregistered_.load());
    for (const char* name : {"a", "b", "c"}) {
      EXPECT_THAT(store_.Register(name, {memory_.key(), 0, 8}, {"peer 0", ""}), testing::IsOk());
    }
  }

 private:
  static memory::RegionTerms TermsOf(Random& random) {
    return {.for_everybody = random() % 2 == 0};
  }
  static void Count(const absl::Status& status) {
    EXPECT_THAT(status.code(), AnyOf(Code::kOk, Code::kAlreadyExists, Code::kResourceExhausted));
  }
  void Use(const std::string& name, const memory::RegionCaller& caller) {
    if (const auto region = store_.Find(name, caller, "x"); region.ok()) {
      const auto data = (*region)->At(7, 1, "x");
      ASSERT_THAT(data, testing::IsOk());
      EXPECT_EQ(**data, std::byte{'h'});
    }
    const auto region = devices_.Find(name, caller, "x");
    if (region.ok()) {
      EXPECT_EQ((*region)->place().bytes, 8);
    }
  }
  template <typename Store>
  void UnregisterOne(Store& store, const std::string& name, const memory::RegionCaller& caller) {
    const absl::Status status = store.Unregister(name, caller, [this] { ++released_; });
    EXPECT_THAT(status.code(), AnyOf(Code::kOk, Code::kNotFound));
    unregistered_ += status.ok();
  }

  const testing::SharedMemory memory_{"abcdefgh"};
  testing::DeviceBackend backend_;
  const std::shared_ptr<testing::FakeExport> exported_ = backend_.device().Export(8);
  const std::shared_ptr<memory::RegionNames> names_ = std::make_shared<memory::RegionNames>(3);
  memory::RegionStore store_{{.enabled = true, .names = names_}};
  memory::DeviceRegionStore devices_{
      backend_.cuda().devices(), {.enabled = true, .names = names_}, Clock::Real()};
  std::atomic<int> unregistered_ = 0, released_ = 0;
};

TEST(SchedulesTest, OfRegions) {
  ForEachSchedule([](Random& random) {
    Regions regions;
    OnThreads(random, [&](int thread, Random& own) { regions.Work(thread, own); });
    regions.ExpectNothingStays();
  });
}

// Leases ----------------------------------------------------------------------------------------

TEST(SchedulesTest, OfLeases) {
  const testing::Memfd memfd("lease");
  ForEachSchedule([&](Random& random) {
    memory::LeaseStore store({.max_bytes = 15, .max_pieces = 3});
    OnThreads(random, [&](int thread, Random& own) {
      const std::string owner = absl::StrCat("uid ", thread % 2);
      std::vector<std::string> tokens;
      for (int i = 0; i < 6; ++i) {
        if (tokens.empty() || own() % 2 == 0) {
          auto token = store.Add(memfd.fd(), owner);
          EXPECT_THAT(token.status().code(), AnyOf(Code::kOk, Code::kResourceExhausted));
          if (token.ok()) tokens.push_back(*std::move(token));
          continue;
        }
        const auto memory = store.Find(tokens.back(), "x");
        ASSERT_THAT(memory, testing::IsOk());
        store.Remove(tokens.back());
        EXPECT_EQ((*memory)->bytes(), 5) << "it is mapped as long as a call uses it";
        EXPECT_EQ(store.Find(tokens.back(), "x").status().code(), Code::kNotFound);
        tokens.pop_back();
      }
      for (const std::string& token : tokens) store.Remove(token);
    });
    EXPECT_EQ(store.stats().pieces, 0);
    EXPECT_EQ(store.stats().bytes, 0);
  });
}

// The threads of the CPU backend ----------------------------------------------------------------

TEST(SchedulesTest, OfAPoolOfThreads) {
  ForEachSchedule([](Random& random) {
    cpu::ThreadPool pool(1 + static_cast<int>(random() % 4));
    OnThreads(random, [&](int, Random& own) {
      for (int i = 0; i < 4; ++i) {
        const auto count = static_cast<int64_t>(own() % 9);
        std::vector<std::atomic<int>> ran(static_cast<size_t>(count));
        pool.ParallelFor(count, [&](int64_t piece) { ++ran[static_cast<size_t>(piece)]; });
        for (const std::atomic<int>& times : ran) EXPECT_EQ(times.load(), 1);
      }
    });
  });
}

}  // namespace
}  // namespace phasor
