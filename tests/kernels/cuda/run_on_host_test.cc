// SPDX-License-Identifier: Apache-2.0
// The host runs every block of a launch, whichever item and part of a row it belongs to.
// items_test.cc checks what the bodies compute.
#include "kernels/cuda/run_on_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/launch_list.h"

namespace phasor::cuda {
namespace {

// The indices of a bias: the clipped distance of key and query, one row per query.
BiasItem Distances(int64_t queries, int32_t keys, std::vector<int32_t>& out) {
  out.assign(static_cast<size_t>(queries * keys), -7);
  BiasItem item;
  item.grid = MakeItemGrid({.rows = queries, .units = keys});
  item.queries.period = MakeSmallDivisor(static_cast<int32_t>(queries));
  item.queries.range = {{0, 0}, {1, 0}, MakeDivisor(queries)};
  item.keys.period = MakeSmallDivisor(keys);
  item.keys.range = {{0, 0}, {1, 0}, MakeDivisor(keys)};
  item.kind = BiasKind::kClipped;
  item.clip = 5;
  item.out = reinterpret_cast<std::byte*>(out.data());
  item.out_row_bytes = keys * int64_t{sizeof(int32_t)};
  return item;
}

void ExpectDistances(int64_t queries, int32_t keys, const std::vector<int32_t>& got) {
  for (int64_t q = 0; q < queries; ++q) {
    for (int64_t k = 0; k < keys; ++k) {
      ASSERT_EQ(got[static_cast<size_t>(q * keys + k)], std::clamp<int64_t>(k - q, -5, 5) + 5);
    }
  }
}

TEST(RunOnHostTest, EveryBlockOfEveryItemRuns) {
  std::vector<int32_t> narrow, wide;
  // Many rows in a block, and many blocks in a row.
  const BiasItem items[] = {Distances(700, 3, narrow), Distances(2, 5000, wide)};
  ASSERT_GT(items[0].grid.block_units, 3);
  ASSERT_LT(items[1].grid.block_units, 5000);
  LaunchList list;
  for (const BiasItem& item : items) list.Add({Op::kBias, Dtype::kInt32}, item);
  alignas(kArenaAlignment) std::byte memory[4096];
  Arena arena(memory, sizeof memory);
  const auto launches = list.Finish(arena, nullptr);
  ASSERT_EQ(launches.size(), 1u);
  RunOnHost(launches[0].kernel, launches[0].batch);
  ExpectDistances(700, 3, narrow);
  ExpectDistances(2, 5000, wide);
}

}  // namespace
}  // namespace phasor::cuda
