// SPDX-License-Identifier: Apache-2.0
// Tests that counts and times add up.
#include "server/oip/model_statistics.h"

#include <gtest/gtest.h>

#include "tests/server/oip/requests.h"

namespace phasor::oip {
namespace {

TEST(ModelStatisticsTest, EveryStepOfASuccessIsCountedAndTimed) {
  const ModelRef model = PresetSet().Find("llama-3");
  StatisticsBook book;
  const InferTimes times{absl::Nanoseconds(1), absl::Nanoseconds(20), absl::Nanoseconds(300),
                         absl::Nanoseconds(4000)};
  book.AddSuccess("llama-3", times, absl::FromUnixMillis(17));
  book.AddSuccess("llama-3", times, absl::FromUnixMillis(18));
  book.AddFailure("llama-3", absl::Nanoseconds(5));
  const auto report = book.Report({model});
  ASSERT_EQ(report.model_stats_size(), 1);
  const inference::ModelStatistics& stats = report.model_stats(0);
  EXPECT_EQ(stats.name(), "llama-3");
  EXPECT_EQ(stats.version(), "1");
  EXPECT_EQ(stats.last_inference(), 18u);
  EXPECT_EQ(stats.inference_count(), 2u);
  EXPECT_EQ(stats.execution_count(), 2u);
  const inference::InferStatistics& steps = stats.inference_stats();
  EXPECT_EQ(steps.success().count(), 2u);
  EXPECT_EQ(steps.success().ns(), 2u * 4321);
  EXPECT_EQ(steps.fail().count(), 1u);
  EXPECT_EQ(steps.fail().ns(), 5u);
  EXPECT_EQ(steps.queue().count(), 2u);
  EXPECT_EQ(steps.queue().ns(), 2u);
  EXPECT_EQ(steps.compute_input().ns(), 40u);
  EXPECT_EQ(steps.compute_infer().ns(), 600u);
  EXPECT_EQ(steps.compute_output().ns(), 8000u);
}

TEST(ModelStatisticsTest, ModelsWithoutCallsAreReportedWithZeros) {
  StatisticsBook book;
  const auto report = book.Report(PresetSet().models());
  ASSERT_EQ(report.model_stats_size(), static_cast<int>(PresetSet().models().size()));
  EXPECT_EQ(report.model_stats(0).inference_count(), 0u);
  EXPECT_TRUE(report.model_stats(0).inference_stats().has_queue());
}

}  // namespace
}  // namespace phasor::oip
