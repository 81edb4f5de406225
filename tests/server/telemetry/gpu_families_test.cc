// SPDX-License-Identifier: Apache-2.0
// Tests the metric families of GPU readings.
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "server/telemetry/families.h"
#include "server/telemetry/gpu_reader.h"

namespace phasor::telemetry {
namespace {

using prometheus::MetricFamily;

TEST(GpuFamiliesTest, EveryReadingHasItsNameAndGpu) {
  const std::string text = prometheus::TextSerializer().Serialize(
      FamiliesOf(GpuReadings{{{"GPU-1", 0.5, 100, 700, 80, 20}, {"GPU-2", 0.25, 50, 600, 40, 10}},
                             std::chrono::milliseconds(1500)}));
  for (const char* line : {"nv_gpu_utilization{gpu_uuid=\"GPU-1\"} 0.5\n",
                           "nv_gpu_utilization{gpu_uuid=\"GPU-2\"} 0.25\n",
                           "nv_gpu_power_usage{gpu_uuid=\"GPU-1\"} 100\n",
                           "nv_gpu_power_limit{gpu_uuid=\"GPU-1\"} 700\n",
                           "nv_gpu_memory_total_bytes{gpu_uuid=\"GPU-1\"} 80\n",
                           "nv_gpu_memory_used_bytes{gpu_uuid=\"GPU-2\"} 10\n",
                           "phasor_gpu_readings_age_seconds 1.5\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " in\n" << text;
  }
}

TEST(GpuFamiliesTest, WhatNoGpuTellsIsLeftOut) {
  EXPECT_TRUE(FamiliesOf(GpuReadings()).empty());
  GpuReading gpu = {.uuid = "GPU-1", .memory_used_bytes = 5};
  const std::vector<MetricFamily> families =
      FamiliesOf(GpuReadings{.gpus = {gpu, {.uuid = "GPU-2"}}});
  ASSERT_EQ(families.size(), 2u) << "and the age";
  EXPECT_EQ(families[0].name, "nv_gpu_memory_used_bytes");
  EXPECT_EQ(families[0].metric.size(), 1u);
}

}  // namespace
}  // namespace phasor::telemetry
