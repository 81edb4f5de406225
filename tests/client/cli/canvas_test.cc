// SPDX-License-Identifier: Apache-2.0
// Tests drawing on a canvas and writing it as PNG.
#include "client/cli/canvas.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temp_dir.h"

namespace phasor::cli {
namespace {

TEST(CanvasTest, DrawsOnlyWhatIsInside) {
  Canvas canvas(4, 3);
  canvas.Fill(-1, -1, 2, 2, kBlack);
  canvas.Fill(3, 2, 5, 5, kGrey);
  EXPECT_EQ(canvas.at(0, 0), kBlack);
  EXPECT_EQ(canvas.at(1, 0), kWhite);
  EXPECT_EQ(canvas.at(3, 2), kGrey);
  EXPECT_EQ(canvas.at(2, 2), kWhite);
}

TEST(CanvasTest, LinesReachBothEnds) {
  Canvas canvas(8, 8);
  canvas.Line(7, 1, 0, 6, kBlack);
  EXPECT_EQ(canvas.at(7, 1), kBlack);
  EXPECT_EQ(canvas.at(0, 6), kBlack);
}

TEST(CanvasTest, TextIsUprightAndStartsAtItsTopLeft) {
  Canvas canvas(12, 8);
  canvas.Text(0, 0, "L", kBlack);  // a stroke on the left and one along the bottom
  EXPECT_EQ(canvas.at(0, 0), kBlack);
  EXPECT_EQ(canvas.at(0, 6), kBlack);
  EXPECT_EQ(canvas.at(4, 6), kBlack);
  EXPECT_EQ(canvas.at(4, 0), kWhite);
  EXPECT_EQ(Canvas::TextWidth("LL"), 12);
}

TEST(CanvasTest, WritesAPngOfItsSize) {
  const std::string path = ::testing::TempDir() + "canvas_test.png";
  ASSERT_TRUE(Canvas(300, 2).WritePng(path).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(bytes.size(), 24u);
  EXPECT_EQ(bytes.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(bytes.substr(16, 8), std::string("\0\0\1\x2c\0\0\0\2", 8));  // width, height
}

TEST(CanvasTest, WhatCannotBeWrittenIsNotDeleted) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/full.png";
  ASSERT_EQ(symlink("/dev/full", path.c_str()), 0);
  const absl::Status status = Canvas(300, 200).WritePng(path);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("No space left on device"));
  EXPECT_TRUE(std::filesystem::is_symlink(path));
}

TEST(CanvasTest, APictureStaysAsItIsWhenAnotherCannotBeWritten) {
  const testing::TempDir dir;
  dir.Write("old.png", "old");
  {
    const testing::FileSizeLimit limit(4);
    EXPECT_FALSE(Canvas(300, 200).WritePng(dir.path() + "/old.png").ok());
  }
  EXPECT_EQ(dir.Read("old.png"), "old");
}

TEST(CanvasTest, SaysWhereItCannotWrite) {
  const absl::Status status = Canvas(1, 1).WritePng("/nowhere/at/all.png");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/nowhere/at/all.png"));
}

}  // namespace
}  // namespace phasor::cli
