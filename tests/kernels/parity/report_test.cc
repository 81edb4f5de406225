// SPDX-License-Identifier: Apache-2.0
#include "client/cli/parity_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/specs.h"

namespace phasor::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Spec Llama() {
  Spec spec = testing::Rotary(128);
  spec.precision = Precision::kParity;
  spec.parity = ParityArithmetic{ParityFrequency::kFloat32Pow,
                                 {},
                                 {},
                                 ParityType::kFloat32,
                                 ParityType::kModel,
                                 ParityType::kModel};
  return spec;
}

TEST(ParityReportTest, SaysHowFarF32AnglesAreOff) {
  const auto report = MakeParityReport(Llama(), 4096, Dtype::kBFloat16);
  ASSERT_THAT(report, testing::IsOk());
  ASSERT_TRUE(report->has_value());
  EXPECT_EQ((*report)->positions, 4096);
  // Half a unit of an f32 below 4096, and up to as much again from the frequency's own rounding.
  EXPECT_GT((*report)->largest.angle, 0x1p-13);
  EXPECT_LT((*report)->largest.angle, 0x1p-12);
  EXPECT_THAT(
      FormatReport(**report),
      StartsWith("largest difference of upstream's arithmetic (PARITY) from exact, positions "
                 "below 4096 (4096 looked at), BFLOAT16 tensors\n  angle           0.0002"));
}

TEST(ParityReportTest, JsonHasTheFrequenciesThatAreUsed) {
  const auto report = MakeParityReport(Llama(), 1, Dtype::kFloat32);
  ASSERT_THAT(report, testing::IsOk());
  ASSERT_TRUE(report->has_value());
  const auto json = ToJson(**report);
  EXPECT_EQ(json["inv_freq"].size(), 64u);
  EXPECT_EQ(json["inv_freq"][0], 1.0);
  EXPECT_EQ(json["largest_angle_difference"], 0.0);
}

TEST(ParityReportTest, PresetsBringTheirUpstreamAndItsContext) {
  Spec spec;
  spec.preset = "llama-3.1-8b";
  const auto report = MakeParityReport(spec, std::nullopt, Dtype::kBFloat16);
  ASSERT_THAT(report, testing::IsOk());
  ASSERT_TRUE(report->has_value());
  EXPECT_EQ((*report)->context_length, 131072);
  EXPECT_GT((*report)->largest.angle, 0x1p-9);
}

TEST(ParityReportTest, SaysNothingOfSpecsWithoutAnUpstream) {
  const auto report = MakeParityReport(testing::Rotary(8), std::nullopt, Dtype::kFloat32);
  ASSERT_THAT(report, testing::IsOk());
  EXPECT_FALSE(report->has_value());
}

TEST(ParityReportTest, RejectsExactSpecsAndEmptyContexts) {
  const auto exact = MakeParityReport(testing::Rotary(8), 16, Dtype::kFloat32);
  EXPECT_EQ(exact.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(exact.status().message()), HasSubstr("must be only for one that has it"));
  const auto empty = MakeParityReport(Llama(), 0, Dtype::kFloat32);
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("context_length: 0"));
}

}  // namespace
}  // namespace phasor::cli
