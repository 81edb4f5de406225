// SPDX-License-Identifier: Apache-2.0
#include "client/cli/layout_flags.h"

#include "gtest/gtest.h"

namespace phasor::cli {
namespace {

TEST(LayoutFlagsTest, EveryFlagSetsItsField) {
  CLI::App app;
  KeyLayout layout;
  int64_t offset = 0;
  AddLayoutFlags(app, layout, offset);
  app.parse(
      "--layout nhd --code q8-0 --pages 2 --page-size 3 --heads 4 --layers 5 --offset-bytes 6 "
      "--page-bytes 7 --slot-bytes 8 --head-bytes 9 --lane-bytes 10 --group-bytes 11 "
      "--row-bytes 12 --group-lanes 13 --lanes-offset 14 --scale 0.5 --hadamard 64");
  EXPECT_EQ(layout.name, "nhd");
  EXPECT_EQ(layout.code, KeyCode::kQ8_0);
  EXPECT_EQ(layout.pages, 2);
  EXPECT_EQ(layout.page_size, 3);
  EXPECT_EQ(layout.heads, 4);
  EXPECT_EQ(layout.layers, 5);
  EXPECT_EQ(offset, 6);
  EXPECT_EQ(layout.page_bytes, 7);
  EXPECT_EQ(layout.slot_bytes, 8);
  EXPECT_EQ(layout.head_bytes, 9);
  EXPECT_EQ(layout.lane_bytes, 10);
  EXPECT_EQ(layout.group_bytes, 11);
  EXPECT_EQ(layout.row_bytes, 12);
  EXPECT_EQ(layout.group_lanes, 13);
  EXPECT_EQ(layout.lanes_offset, 14);
  EXPECT_EQ(layout.scale, 0.5f);
  EXPECT_EQ(layout.hadamard, 64);
  EXPECT_TRUE(HasDistances(layout));
}

TEST(LayoutFlagsTest, WithoutFlagsTheLayoutStays) {
  CLI::App app;
  KeyLayout layout{.page_size = 16};
  int64_t offset = 0;
  AddLayoutFlags(app, layout, offset);
  app.parse("");
  EXPECT_EQ(layout.page_size, 16);
  EXPECT_FALSE(HasDistances(layout));
}

}  // namespace
}  // namespace phasor::cli
