// SPDX-License-Identifier: Apache-2.0
// Reports on a spec's parity arithmetic: their numbers, defaults and errors.
#include "kernels/plan/parity_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/specs.h"

namespace phasor::parity {
namespace {

using ::testing::HasSubstr;

Spec LlamaSpec() {
  Spec spec = testing::Rotary(128);
  spec.parity = ParityArithmetic{ParityFrequency::kFloat32Pow,
                                 {},
                                 {},
                                 ParityType::kFloat32,
                                 ParityType::kModel,
                                 ParityType::kModel};
  return spec;
}

TEST(ParityReportTest, SaysHowFarF32AnglesAreOff) {
  const auto report = Compare(LlamaSpec(), {4096, Dtype::kBFloat16});
  ASSERT_THAT(report, testing::IsOk());
  ASSERT_TRUE(report->has_value());
  EXPECT_EQ((*report)->positions, 4096);
  EXPECT_EQ((*report)->context_length, 4096);
  EXPECT_EQ((*report)->inv_freq.size(), 64u);
  EXPECT_EQ((*report)->inv_freq[0], 1.0);
  // Half a unit of an f32 below 4096, and up to the same again from rounding the frequency.
  EXPECT_GT((*report)->largest.angle, 0x1p-13);
  EXPECT_LT((*report)->largest.angle, 0x1p-12);
}

TEST(ParityReportTest, PresetsBringTheirUpstreamAndItsContext) {
  Spec spec;
  spec.preset = "llama-3.1-8b";
  const auto report = Compare(spec, {});
  ASSERT_THAT(report, testing::IsOk());
  ASSERT_TRUE(report->has_value());
  EXPECT_EQ((*report)->context_length, 131072);
  EXPECT_GT((*report)->largest.angle, 0x1p-9);
}

TEST(ParityReportTest, ManyPairsAreLookedAtInFewerPositions) {
  Spec spec = LlamaSpec();
  spec.head_dim = 8192;
  const auto report = Compare(spec, {131072, Dtype::kFloat32});
  ASSERT_THAT(report, testing::IsOk());
  EXPECT_EQ((*report)->positions, 128);
  EXPECT_GT((*report)->largest.angle, 0x1p-9);
}

TEST(ParityReportTest, SaysNothingOfSpecsWithoutAnUpstream) {
  const auto report = Compare(testing::Rotary(8), {});
  ASSERT_THAT(report, testing::IsOk());
  EXPECT_FALSE(report->has_value());
}

TEST(ParityReportTest, RejectsExactSpecsEmptyContextsAndOtherTypes) {
  const auto message = [](const Spec& spec, const Comparison& comparison) {
    const absl::Status status = Compare(spec, comparison).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(testing::Rotary(8), {16}), HasSubstr("must be only for one that has it"));
  EXPECT_THAT(message(LlamaSpec(), {0}), HasSubstr("parity_comparison.context_length: 0; must be"));
  EXPECT_THAT(message(LlamaSpec(), {16, Dtype::kInt32}),
              HasSubstr("parity_comparison.dtype: INT32"));
}

}  // namespace
}  // namespace phasor::parity
