// SPDX-License-Identifier: Apache-2.0
// The driver on the CUDA runtime. Without a device: OpenDevice says so and the process goes on.
// With a device: the kernels return the reference's bytes.
#include "kernels/cuda/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/items.h"
#include "kernels/cuda/launch.h"
#include "tests/kernels/cuda/moves_on_driver.h"
#include "tests/support/random_jobs.h"

namespace phasor::cuda {
namespace {

using ::testing::HasSubstr;

// The device, or nullptr and the reason. With PHASOR_REQUIRE_GPU=1, having no device is a failure.
std::unique_ptr<Driver> Device() {
  auto driver = OpenDevice();
  if (driver.ok()) {
    const DeviceInfo& info = (*driver)->device();
    std::cout << "device: " << info.name << ", compute capability " << info.major << '.'
              << info.minor << '\n';
    return *std::move(driver);
  }
  const char* const required = std::getenv("PHASOR_REQUIRE_GPU");
  EXPECT_FALSE(required != nullptr && std::string(required) == "1") << driver.status();
  return nullptr;
}

// The number of jobs to compare. PHASOR_RANDOM_JOBS sets it where each job takes long, as under
// compute-sanitizer.
uint64_t RandomJobs() {
  const char* const wanted = std::getenv("PHASOR_RANDOM_JOBS");
  return wanted == nullptr ? 2000 : std::strtoull(wanted, nullptr, 10);
}

TEST(CudaDriverTest, WithoutADeviceSaysSo) {
  const auto driver = OpenDevice();
  if (driver.ok()) GTEST_SKIP() << "this host has a device: " << (*driver)->device().name;
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("no CUDA device"));
}

TEST(CudaDriverTest, ListsDevicesByTheirNumbers) {
  const auto names = ListDevices();
  const int count = names.ok() ? static_cast<int>(names->size()) : 0;
  for (int number = 0; number < count; ++number) {
    const auto driver = OpenDevice(number);
    if (!driver.ok()) continue;
    EXPECT_EQ((*driver)->device().number, number);
    EXPECT_EQ((*driver)->device().name, (*names)[static_cast<size_t>(number)]);
  }
  for (const int number : {-1, count}) {
    EXPECT_THAT(std::string(OpenDevice(number).status().message()), HasSubstr("no CUDA device"));
  }
}

TEST(CudaDriverTest, LaunchesWithoutADeviceFailAndDoNotCrash) {
  if (OpenDevice().ok()) GTEST_SKIP() << "this host has a device";
  Batch batch;
  const KernelId kernel{Op::kRotary, Dtype::kFloat32, true};
  EXPECT_EQ(LaunchKernel(kernel, batch, nullptr), 0) << "no blocks, no launch";
  batch.blocks = 1;
  EXPECT_NE(LaunchKernel(kernel, batch, nullptr), 0);
}

TEST(OnTheDeviceTest, RandomJobsHaveTheReferencesBytes) {
  auto driver = Device();
  if (driver == nullptr) GTEST_SKIP() << "SKIP: no CUDA device on this host, nothing was compared";
  const auto reference = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  CudaBackend backend(std::move(driver), cpu::MakeCpuBackend({cpu::Target::kScalar, 1}),
                      {.chunk_bytes = int64_t{256} << 10, .least_bytes = 0, .strict = true});
  const uint64_t jobs = RandomJobs();
  ASSERT_GE(jobs, 1u);
  for (uint64_t seed = 0; seed < jobs; ++seed) {
    testing::RandomJob random(seed, /*misaligned=*/true);
    ASSERT_TRUE(reference->Run({random.job()}).ok());
    const auto want = random.Now();
    random.Reset();
    const absl::Status ran = backend.Run({random.job()});
    ASSERT_TRUE(ran.ok()) << "seed " << seed << ": " << ran;
    const auto got = random.Now();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(testing::SameBits(want[i], got[i])) << "seed " << seed << " memory " << i;
    }
  }
  const CudaState state = backend.state();
  EXPECT_EQ(state.jobs_rescued, 0) << state.last_error;
  EXPECT_GT(state.jobs_on_device * 4, static_cast<int64_t>(jobs) * 3);
  EXPECT_EQ(state.last_error, "");
}

// Nothing computes in the device's place: there is no backend.
TEST(OnTheDeviceTest, RandomMovesOfKeysHaveTheReferencesBytes) {
  const auto driver = Device();
  if (driver == nullptr) GTEST_SKIP() << "SKIP: no CUDA device on this host, nothing was compared";
  const auto reference = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  int64_t launches = 0;
  const uint64_t moves = RandomJobs() / 4 + 1;  // each takes longer than a job
  for (uint64_t seed = 0; seed < moves; ++seed) {
    testing::RandomMove random(seed);
    if (!Supports(random.job())) continue;
    ASSERT_TRUE(reference->Run({random.job()}).ok());
    const auto want = random.Now();
    random.Reset();
    const absl::Status ran = testing::RunOnDriver(*driver, random, &launches);
    ASSERT_TRUE(ran.ok()) << "seed " << seed << ": " << ran;
    const auto got = random.Now();
    for (size_t i = 0; i < want.size(); ++i) {
      for (int64_t k = 0; k < want[i].size_bytes(); ++k) {
        ASSERT_EQ(want[i].data()[k], got[i].data()[k])
            << "seed " << seed << " " << random.Describe() << " pool " << i << " byte " << k;
      }
    }
  }
  EXPECT_GE(2 * launches, static_cast<int64_t>(moves));
}

TEST(OnTheDeviceTest, RandomComparisonsOfKeysFindWhatTheReferenceFinds) {
  const auto driver = Device();
  if (driver == nullptr) GTEST_SKIP() << "SKIP: no CUDA device on this host, nothing was compared";
  const auto reference = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  int64_t launches = 0;
  for (uint64_t seed = 0; seed < RandomJobs() / 8 + 1; ++seed) {
    testing::RandomMove random(seed, /*compares=*/true);
    if (!Supports(random.job())) continue;
    ASSERT_TRUE(reference->Run({random.AsCopy()}).ok());
    random.Corrupt();
    ASSERT_TRUE(reference->Run({random.job()}).ok());
    const auto want = random.reports();
    const absl::Status ran = testing::RunOnDriver(*driver, random, &launches);
    ASSERT_TRUE(ran.ok()) << "seed " << seed << ": " << ran;
    ASSERT_TRUE(testing::SameReports(want, random.reports()))
        << "seed " << seed << " " << random.Describe();
  }
  EXPECT_GT(launches, 0);
}

}  // namespace
}  // namespace phasor::cuda
