// SPDX-License-Identifier: Apache-2.0
// Tests what is told of calls by the counters of an engine.
#include "server/engine/load.h"

#include <gtest/gtest.h>

#include "server/engine/call.h"

namespace phasor::engine {
namespace {

constexpr int64_t kMost = 4 * kLargeRunBytes;

// The load of so many small and large jobs after others. `shared_bytes` of the large ones are not
// in messages.
Load LoadOf(int64_t small, int64_t large, int64_t large_bytes, int64_t shared_bytes = 0) {
  EngineStats before;
  before.jobs = 100;
  before.large_jobs = 10;
  before.large_bytes = int64_t{1} << 40;
  before.large_message_bytes = int64_t{1} << 39;
  EngineStats now = before;
  now.jobs += small + large;
  now.large_jobs += large;
  now.large_bytes += large_bytes;
  now.large_message_bytes += large_bytes - shared_bytes;
  return LoadBetween(before, now, kMost);
}

TEST(LoadTest, IsToldByTheJobsSinceTheLastLook) {
  EXPECT_EQ(LoadOf(0, 0, 0), Load::kNone);
  EXPECT_EQ(LoadOf(1, 0, 0), Load::kSmall);
  EXPECT_EQ(LoadOf(9, 1, 10 * kLargeRunBytes), Load::kSmall);  // on average
  EXPECT_EQ(LoadOf(0, 2, 2 * kLargeRunBytes), Load::kSmall);   // in one run
  EXPECT_EQ(LoadOf(9, 1, 10 * kLargeRunBytes + 1), Load::kMixed);
  EXPECT_EQ(LoadOf(0, 2, 2 * kMost), Load::kLarge);
  EXPECT_EQ(LoadOf(1, 2, 2 * kMost), Load::kMixed);  // a small one among them
  EXPECT_EQ(LoadOf(0, 2, 2 * (kMost + 1)), Load::kMixed);
}

TEST(LoadTest, CallsWithTensorsInSharedMemoryHaveSmallMessages) {
  constexpr int64_t kTensors = 2 * kHeldShare * kMost;
  EXPECT_EQ(LoadOf(0, 1, kTensors, kTensors - kLargeRunBytes), Load::kSmall);
  EXPECT_EQ(LoadOf(0, 1, kTensors, kTensors - kLargeRunBytes - 1), Load::kMixed);
  EXPECT_EQ(LoadOf(9, 1, kTensors + 10 * kLargeRunBytes, kTensors), Load::kSmall);  // on average
  EXPECT_EQ(LoadOf(1, 1, kTensors, kTensors), Load::kSmall);          // a small one among them
  EXPECT_EQ(LoadOf(0, 1, kTensors / 2, kTensors / 2), Load::kLarge);  // bytes count a quarter
  EXPECT_EQ(LoadOf(0, 1, kTensors / 2 + kHeldShare, kTensors / 2 + kHeldShare), Load::kSmall);
}

}  // namespace
}  // namespace phasor::engine
