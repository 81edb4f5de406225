// SPDX-License-Identifier: Apache-2.0
// Tests heat maps, error charts, and the errors that they show.
#include "client/cli/plot.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phasor::cli {
namespace {

// One pair that turns by one radian per position.
SpecDetails OneRadian() {
  SpecDetails details;
  details.pairs.push_back({.turns = {0, 0x28BE60DB9391054A}, .inv_freq = 1.0});
  return details;
}

TEST(PlotTest, HeatMapsAreRedAboveZeroAndBlueBelow) {
  const std::vector<double> values = {2, 0, -2, 1};
  const absl::StatusOr<Canvas> map = HeatMap(values, 2, 2, "t");
  ASSERT_TRUE(map.ok()) << map.status();
  const int cell = 320;  // two cells on 640 pixels
  const int right = map->width() - 12 - 1;
  const int bottom = map->height() - 12 - 1;
  EXPECT_EQ(map->at(right - cell, bottom - cell), (Color{178, 24, 43}));
  EXPECT_EQ(map->at(right, bottom - cell), kWhite);
  EXPECT_EQ(map->at(right - cell, bottom), (Color{33, 102, 172}));
  const Color half = map->at(right, bottom);
  EXPECT_GT(half.red, half.blue);
  EXPECT_GT(half.blue, 100);
}

TEST(PlotTest, HeatMapsMarkWhatIsNoNumber) {
  const std::vector<double> values = {1, std::numeric_limits<double>::quiet_NaN()};
  const absl::StatusOr<Canvas> map = HeatMap(values, 1, 2, "t");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->at(map->width() - 13, map->height() - 13), kBlack);
}

TEST(PlotTest, HeatMapsRefuseNothingAndTooMuch) {
  EXPECT_EQ(HeatMap({}, 0, 4, "").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HeatMap(std::vector<double>(4097), 4097, 1, "").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PlotTest, ErrorsAreTakenAtDistinctPositionsUpToTheLast) {
  const std::vector<AngleError> errors = AngleErrors(OneRadian(), 1000, 100);
  ASSERT_GT(errors.size(), 50u);
  EXPECT_EQ(errors.front().position, 1);
  EXPECT_EQ(errors.back().position, 1000);
  for (size_t i = 1; i < errors.size(); ++i) {
    EXPECT_GT(errors[i].position, errors[i - 1].position);
  }
}

// float32(2^24 + 1) is 2^24: the angle is one radian short. The exact value stays within 2^-24.
TEST(PlotTest, Float32AnglesFailWherePositionsDoNotFit) {
  const AngleError error = AngleErrors(OneRadian(), (1 << 24) + 1, 2).back();
  ASSERT_EQ(error.position, (1 << 24) + 1);
  const double p = error.position;
  const double expected =
      std::max(std::abs(std::sin(p) - std::sin(p - 1)), std::abs(std::cos(p) - std::cos(p - 1)));
  EXPECT_NEAR(error.float32_angle, expected, 1e-9);
  EXPECT_LT(error.exact, 0x1p-24);
}

TEST(PlotTest, ChartsShowBothCurves) {
  const Canvas chart = ErrorChart(AngleErrors(OneRadian(), 1 << 20, 100), "t");
  int red = 0;
  int blue = 0;
  for (int y = 80; y < chart.height(); ++y) {
    for (int x = 60; x < chart.width(); ++x) {
      red += chart.at(x, y) == Color{178, 24, 43};
      blue += chart.at(x, y) == Color{33, 102, 172};
    }
  }
  EXPECT_GT(red, 300);
  EXPECT_GT(blue, 300);
}

}  // namespace
}  // namespace phasor::cli
