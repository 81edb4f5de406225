// SPDX-License-Identifier: Apache-2.0
// Measured rates, and the choice between host and device that follows from them.
#include "kernels/cuda/rates.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/fake_driver.h"
#include "tests/support/hand_plans.h"
#include "tests/support/tensors.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;
using testing::MakeHandPlan;
using testing::Tensor;

// Rotations in place with 64 bytes per token.
class Tokens {
 public:
  explicit Tokens(int64_t count) : x_(Dtype::kFloat32, count * 16) {
    x_.Fill(1);
    job_.plan = plan_.get();
    positions_ = *MakePositionSource(AxisRange{IntegerRange{0, 1, count}}, 1, "positions");
    job_.positions = &positions_;
    job_.tokens = count;
    job_.tensors = {{Dtype::kFloat32, 1, x_.data(), {0, 64, 64}, x_.data(), {0, 64, 64}}};
  }
  Job job() const { return job_; }

 private:
  std::shared_ptr<const Plan> plan_ = MakeHandPlan({.pairs = 8});
  PositionSource positions_;
  Tensor x_;
  RotaryJob job_;
};

TEST(RatesTest, TheDeviceIsFasterFromSomeSizeOn) {
  // A trip takes 1 ms and 2 ns a byte for both ways; the host takes 5 ns a byte.
  // Both take the same time at 1 ms / 3 ns bytes.
  const Rates rates{.host_encode = 1,
                    .host_other = 5e-9,
                    .to_device = 1e-9,
                    .to_host = 0.5e-9,
                    .on_device = 0.5e-9,
                    .trip = 1e-3};
  const int64_t even = 333333 / 64;
  EXPECT_FALSE(IsDeviceFaster(rates, {Tokens(even - 10).job()}));
  EXPECT_TRUE(IsDeviceFaster(rates, {Tokens(even + 10).job()}));
  const Tokens half(even / 2 + 10);
  EXPECT_FALSE(IsDeviceFaster(rates, {half.job()}));
  EXPECT_TRUE(IsDeviceFaster(rates, {half.job(), half.job()})) << "a batch counts as a whole";
  EXPECT_FALSE(IsDeviceFaster(rates, {}));
}

TEST(RatesTest, EncodingsHaveARateOfTheirOwn) {
  const auto plan = MakeHandPlan({.pairs = 8});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, 100}}, 1, "positions");
  EncodeJob job;
  job.plan = plan.get();
  RowLayout layout;
  layout.width = 16;
  job.layout = &layout;
  job.positions = &positions;
  EXPECT_EQ(BytesOf(job).written, 6400);
  EXPECT_EQ(BytesOf(job).read, 0);
  std::byte add_to{};
  job.add_to = &add_to;
  EXPECT_EQ(BytesOf(job).read, 6400);
  EXPECT_TRUE(
      IsDeviceFaster({.host_encode = 3e-9, .to_device = 1e-9, .to_host = 1e-9}, {Job(job)}));
  EXPECT_FALSE(
      IsDeviceFaster({.host_other = 3e-9, .to_device = 1e-9, .to_host = 1e-9}, {Job(job)}));
}

TEST(RatesTest, AreMeasuredThroughTheDriver) {
  const auto device = std::make_shared<FakeDevice>();
  device->SetTrip(absl::Milliseconds(20));
  FakeDriver driver(device);
  const auto host = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  const auto rates = MeasureRates(driver, *host);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_GE(rates->trip, 0.02);
  EXPECT_GE(rates->to_device * (8 << 20), 0.02);
  EXPECT_GE(rates->to_host * (8 << 20), 0.02);
  EXPECT_GE(rates->on_device * (8 << 20), 0.02);
  EXPECT_GT(rates->host_other, 0);
  EXPECT_GT(rates->host_encode, 0);
  EXPECT_EQ(device->bytes(), 0) << "given back";
}

TEST(RatesTest, ADeviceThatFailsIsNotMeasured) {
  for (const std::string fails : {"Allocate", "CopyToDevice", "CopyToHost", "Run", "Synchronize"}) {
    const auto device = std::make_shared<FakeDevice>();
    device->FailWith([&](const std::string& call, int64_t) {
      return call == fails ? absl::InternalError("refused") : absl::OkStatus();
    });
    FakeDriver driver(device);
    const auto host = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
    EXPECT_EQ(MeasureRates(driver, *host).status().code(), absl::StatusCode::kInternal) << fails;
    EXPECT_EQ(device->bytes(), 0);
  }
}

// The backend uses the rates batch by batch.
TEST(RatesTest, EveryBatchRunsWhereItIsDoneSooner) {
  const auto device = std::make_shared<FakeDevice>();
  const auto exported = device->Export(1 << 16);
  CudaBackend backend(
      std::make_unique<FakeDriver>(device), cpu::MakeCpuBackend({cpu::Target::kScalar, 1}),
      {.chunk_bytes = 1 << 20,
       .slots = 2,
       .least_bytes = 0,
       .rates = Rates{.host_other = 5e-9, .to_device = 1e-9, .to_host = 1e-9, .trip = 1e-4}});
  const Tokens few(100), many(2000);  // equal at 521
  const auto ran_on = [&](const Job& job) {
    JobResult result;
    backend.RunEach({&job, 1}, {&result, 1});
    EXPECT_TRUE(result.status.ok());
    return result.backend;
  };
  EXPECT_EQ(ran_on(few.job()), "cpu");
  EXPECT_EQ(ran_on(many.job()), "cuda");
  EXPECT_EQ(backend.device_counts().jobs_sooner_on_cpu, 1);
  EXPECT_EQ(backend.device_counts().jobs_not_for_it, 0);
  const auto allocation = *backend.Open(exported->handle());
  Job there = few.job();
  auto& tensor = std::get<RotaryJob>(there).tensors[0];
  tensor.x = tensor.y = allocation->data();
  EXPECT_EQ(ran_on(there), "cuda") << "it is on the device already";
  const Job both[] = {there, few.job()};
  JobResult results[2];
  backend.RunEach(both, results);
  EXPECT_EQ(results[0].backend, "cuda");
  EXPECT_EQ(results[1].backend, "cpu");
}

TEST(RatesTest, WhereTheHostIsAlwaysFasterCallsDoNotGather) {
  const Rates slow_link{.host_other = 1e-9, .to_device = 1e-9, .to_host = 1e-9};
  const Rates fast_link{.host_other = 5e-9, .to_device = 1e-9, .to_host = 1e-9};
  for (const Rates& rates : {slow_link, fast_link}) {
    const CudaBackend backend(std::make_unique<FakeDriver>(std::make_shared<FakeDevice>()),
                              cpu::MakeCpuBackend({cpu::Target::kScalar, 1}), {.rates = rates});
    EXPECT_EQ(backend.batch_policy().bytes > 0, rates.host_other > 2e-9);
  }
}

}  // namespace
}  // namespace phasor::cuda
