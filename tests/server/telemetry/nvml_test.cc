// SPDX-License-Identifier: Apache-2.0
// Tests against a library that the test builds. This has not run on a real GPU.
#include "server/telemetry/nvml.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace phasor::telemetry {
namespace {

class NvmlTest : public ::testing::Test {
 protected:
  ~NvmlTest() override { unsetenv("FAKE_NVML"); }
};

TEST_F(NvmlTest, ReadsWhatEveryGpuTells) {
  const auto nvml = Nvml::Open(FAKE_NVML_LIBRARY);
  ASSERT_NE(nvml, nullptr);
  const std::vector<GpuReading> gpus = nvml->Read();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ(gpus[0].utilization, 0.25);
  EXPECT_EQ(gpus[0].power_watts, 123.456);
  EXPECT_EQ(gpus[0].power_limit_watts, 700);
  EXPECT_EQ(gpus[0].memory_total_bytes, 150.0 * (1 << 30));
  EXPECT_EQ(gpus[0].memory_used_bytes, 1 << 30);
  EXPECT_EQ(gpus[1].uuid, "GPU-00000000-0000-0000-0000-000000000002");
  EXPECT_FALSE(gpus[1].utilization.has_value());
  EXPECT_FALSE(gpus[1].power_watts.has_value());
  EXPECT_FALSE(gpus[1].power_limit_watts.has_value());
  EXPECT_EQ(gpus[1].memory_used_bytes, 2.0 * (1 << 30));
}

TEST_F(NvmlTest, WithoutLibraryFunctionsDriverOrGpuThereIsNone) {
  EXPECT_EQ(Nvml::Open("libno-such-library.so.1"), nullptr);
  EXPECT_EQ(Nvml::Open("libc.so.6"), nullptr);
  setenv("FAKE_NVML", "no driver", 1);
  EXPECT_EQ(Nvml::Open(FAKE_NVML_LIBRARY), nullptr);
  setenv("FAKE_NVML", "no gpu", 1);
  EXPECT_EQ(Nvml::Open(FAKE_NVML_LIBRARY), nullptr);
}

}  // namespace
}  // namespace phasor::telemetry
