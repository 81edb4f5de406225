// SPDX-License-Identifier: Apache-2.0
// Tests what a running server takes over, and what it reports about the rest.
#include "server/config/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ReloadTest, EqualOptionsChangeNothing) {
  ServerOptions current;
  const ReloadReport report = TakeOver(ServerOptions(), &current);
  EXPECT_THAT(report.changed, IsEmpty());
  EXPECT_THAT(report.needs_restart, IsEmpty());
}

TEST(ReloadTest, LimitsTakeEffectAndOthersNeedARestartEveryTime) {
  ServerOptions current, next;
  next.max_batch_items = 8;
  next.max_inflight_bytes = 64 << 20;
  next.drain_delay = absl::Seconds(3);
  next.threads = 5;
  next.tables_dir = "/tables";
  const ReloadReport first = TakeOver(next, &current);
  EXPECT_THAT(first.changed, ElementsAre("max-inflight-bytes: 8GiB -> 64MiB",
                                         "max-batch-items: 4096 -> 8", "drain-delay: 0 -> 3s"));
  EXPECT_THAT(first.needs_restart, ElementsAre("threads: 0 -> 5", "tables-dir: none -> /tables"));
  EXPECT_EQ(current.max_batch_items, 8);
  EXPECT_EQ(current.threads, 0);
  EXPECT_EQ(current.tables_dir, "");
  const ReloadReport second = TakeOver(next, &current);
  EXPECT_THAT(second.changed, IsEmpty());
  EXPECT_EQ(second.needs_restart, first.needs_restart);
}

TEST(ReloadTest, EncodersAreComparedByNameNotByPlace) {
  ServerOptions current, next;
  const Spec a{.preset = "transformer", .dim = 8}, b{.preset = "transformer", .dim = 16};
  current.encoders = {{"stays", a}, {"changes", a}, {"goes", a}};
  next.encoders = {{"comes", a}, {"changes", b}, {"stays", a}};
  EXPECT_THAT(
      TakeOver(next, &current).changed,
      ElementsAre("encoders.changes: changed", "encoders.comes: added", "encoders.goes: removed"));
  EXPECT_EQ(current.encoders, next.encoders);
}

}  // namespace
}  // namespace phasor
