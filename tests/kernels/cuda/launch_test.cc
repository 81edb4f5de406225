// SPDX-License-Identifier: Apache-2.0
// launch.cu on the host, with threads for the threads of a block: the order of a body's phases, the
// barriers between them, and the arguments of launches. Bodies alone are tested in items_test.cc.
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/cuda_on_host.h"
#include "tests/support/host_grid.h"
#include "tests/support/random_moves.h"

// The library has functions of these names.
#define CanLaunch CanLaunchOnHost
#define LaunchKernel LaunchKernelOnHost
#include "kernels/cuda/launch.cu"

namespace phasor::cuda {
namespace {

using testing::g_cuda;
using testing::Tensor;

// Adds everything that jobs need. `results`: of a comparison.
std::vector<Launch> LaunchesOf(absl::Span<const Job> jobs, Arena& arena, std::byte* base,
                               std::byte* results) {
  LaunchList list;
  for (const Job& job : jobs) {
    testing::AddWhereTheyLie(job, int64_t{1} << 40, list, arena, 1, results);
  }
  return list.Finish(arena, base);
}

void LaunchAll(absl::Span<const Job> jobs, std::byte* results = nullptr) {
  Arena count;
  LaunchesOf(jobs, count, nullptr, results);
  std::vector<std::max_align_t> memory(
      static_cast<size_t>(count.used()) / sizeof(std::max_align_t) + 1);
  auto* const base = reinterpret_cast<std::byte*>(memory.data());
  Arena arena(base, count.used());
  for (auto launch : LaunchesOf(jobs, arena, base, results)) {
    // A small arena is not on the device.
    if (launch.batch.arena_bytes <= kInlineBytes) launch.batch.arena = nullptr;
    ASSERT_EQ(LaunchKernelOnHost(launch.kernel, launch.batch, nullptr), cudaSuccess);
  }
}

// The kernels that a test has launched: threads for the threads of blocks take long.
class NewKernels {
 public:
  // Whether jobs have one that earlier jobs had not.
  bool In(absl::Span<const Job> jobs, std::byte* results = nullptr) {
    Arena count;
    bool any = false;
    for (const auto& launch : LaunchesOf(jobs, count, nullptr, results)) {
      const KernelId& id = launch.kernel;
      any |= seen_.emplace(id.op, id.wide, id.plain, id.float8, id.code).second;
    }
    return any;
  }
  size_t count() const { return seen_.size(); }

 private:
  std::set<std::tuple<Op, bool, bool, bool, KeyCode>> seen_;
};

const std::unique_ptr<Backend>& Reference() {
  static const auto& reference =
      *new std::unique_ptr<Backend>(cpu::MakeCpuBackend({cpu::Target::kScalar, 1}));
  return reference;
}

template <typename Random>
std::vector<Tensor> Wanted(Random& random) {
  EXPECT_TRUE(Reference()->Run({random.job()}).ok());
  std::vector<Tensor> want = random.Now();
  random.Reset();
  return want;
}

TEST(LaunchTest, RandomJobsHaveTheReferencesBytes) {
  NewKernels kernels;
  for (uint64_t seed = 0; seed < 400; seed += 2) {
    testing::RandomJob one(seed), other(seed + 1);
    if (!Supports(one.job()) || !Supports(other.job())) continue;
    if (!kernels.In({one.job(), other.job()})) continue;
    const auto want = Wanted(one), want_other = Wanted(other);
    // One item is an argument itself. Of two, a block finds its own.
    if (seed % 4 == 0) {
      LaunchAll({one.job()});
      LaunchAll({other.job()});
    } else {
      LaunchAll({one.job(), other.job()});
    }
    for (const auto& [all, got] : {std::pair(&want, one.Now()), {&want_other, other.Now()}}) {
      for (size_t i = 0; i < all->size(); ++i) {
        ASSERT_TRUE(testing::SameBits((*all)[i], got[i])) << "seed " << seed << " memory " << i;
      }
    }
  }
  EXPECT_EQ(kernels.count(), 10u) << "encode and rotary in all forms, lookup, bias";
}

TEST(LaunchTest, RandomMovesOfKeysHaveTheReferencesBytes) {
  NewKernels kernels;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    testing::RandomMove random(seed);
    if (!Supports(random.job()) || !kernels.In({random.job()})) continue;
    const auto want = Wanted(random);
    LaunchAll({random.job()});
    const auto got = random.Now();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::vector(want[i].data(), want[i].data() + want[i].size_bytes()),
                std::vector(got[i].data(), got[i].data() + got[i].size_bytes()))
          << "seed " << seed << " " << random.Describe() << " pool " << i;
    }
  }
  EXPECT_EQ(kernels.count(), 22u)
      << "of 11 codes, 5 in registers, 4 with scales; copies, positions";
}

TEST(LaunchTest, RandomComparisonsOfKeysFindWhatTheReferenceFinds) {
  NewKernels kernels;
  for (uint64_t seed = 0; kernels.count() < 4; ++seed) {
    testing::RandomMove random(seed, /*compares=*/true);
    if (!Supports(random.job()) || !kernels.In({random.job()})) continue;
    ASSERT_TRUE(Reference()->Run({random.AsCopy()}).ok());
    random.Corrupt();
    ASSERT_TRUE(Reference()->Run({random.job()}).ok());
    const auto want = random.reports();
    const MoveJob& move = random.move();
    const int64_t row_bytes = ResultBytes(move);
    std::vector<int64_t> results(static_cast<size_t>(RowsOf(move) * row_bytes) / 8 + 1);
    auto* const found = reinterpret_cast<std::byte*>(results.data());
    LaunchAll({random.job()}, found);
    ClearReports(move);
    for (int64_t first = 0; first < RowsOf(move);) {
      const Slice slice = SliceFrom(random.job(), first, int64_t{1} << 40);
      AddResults(move, slice, found + first * row_bytes);
      first += slice.count;
    }
    ASSERT_TRUE(testing::SameReports(want, random.reports()))
        << "seed " << seed << " " << random.Describe();
  }
}

// Code for older devices does not wait, so a newer one must not start it early.
TEST(LaunchTest, OnlyCodeThatWaitsStartsEarly) {
  const auto before = g_cuda;
  for (const auto& [major, newest, early] :
       {std::tuple(8, 900, false), {9, 900, true}, {12, 1200, true}, {9, 890, false}}) {
    g_cuda = {major, newest};
    testing::RandomMove random(0);
    LaunchAll({random.job()});
    ASSERT_FALSE(g_cuda.early.empty());
    for (const bool starts : g_cuda.early) {
      EXPECT_EQ(starts, early) << "compute capability " << major << ", code for " << newest;
    }
  }
  g_cuda = before;
}

TEST(LaunchTest, ABatchWithoutBlocksQueuesNothing) {
  g_cuda.early.clear();
  EXPECT_EQ(LaunchKernelOnHost({}, {}, nullptr), cudaSuccess);
  EXPECT_TRUE(g_cuda.early.empty());
}

}  // namespace
}  // namespace phasor::cuda
