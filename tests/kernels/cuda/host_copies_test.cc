// SPDX-License-Identifier: Apache-2.0
// Jobs on device memory that run on host copies: bytes, memory, and errors of the driver.
#include "kernels/cuda/host_copies.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cuda/device_twin.h"
#include "tests/support/fake_driver.h"

namespace phasor::cuda {
namespace {

using testing::DeviceTwin;
using testing::FakeDevice;
using testing::FakeDriver;
using testing::RandomJob;
using testing::SameBits;
using testing::Tensor;

struct CopiesFixture {
  absl::StatusOr<HostCopies> Make(const Job& job) {
    return HostCopies::Make(job, RowsOfTensors(job, &memory), &driver, stream);
  }
  int64_t BytesFor(const Job& job) const {
    return HostCopies::BytesFor(job, RowsOfTensors(job, &memory));
  }
  ~CopiesFixture() { driver.DestroyStream(stream); }
  // Rows of 256 bytes on the device.
  RotaryJob InPlace(int64_t tokens) const {
    RotaryJob job;
    job.plan = plan.get();
    job.tokens = tokens;
    std::byte* const at = allocation->data();
    job.tensors = {{Dtype::kFloat32, 1, at, {0, 256, 256}, at, {0, 256, 256}}};
    return job;
  }

  const std::shared_ptr<const Plan> plan = testing::MakeHandPlan({.pairs = 32});

  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  FakeDriver driver{device};
  DeviceLife life{{}, [] { return absl::OkStatus(); }};
  DeviceMemory memory{&driver, &life};
  std::shared_ptr<testing::FakeExport> exported = device->Export(int64_t{8} << 20);
  std::shared_ptr<const DeviceAllocation> allocation = *memory.Open(exported->handle());
  Stream stream = *driver.CreateStream();
};

// Bytes between rows and heads must not change: SameBits compares the whole memory of a tensor.
TEST(HostCopiesTest, RandomJobsOnCopiesHaveTheReferencesBytes) {
  const auto reference = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  CopiesFixture f;
  int compared = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomJob random(seed, /*misaligned=*/true);
    ASSERT_TRUE(reference->Run({random.job()}).ok());
    const std::vector<Tensor> want = random.Now();
    random.Reset();
    DeviceTwin twin(f.exported);
    testing::Chooser choose(seed);
    for (const auto& tensor : random.memory()) {
      if (choose.Coin()) twin.Move(tensor.get());
    }
    const Job job = twin.Moved(random.job());
    auto copies = f.Make(job);
    ASSERT_TRUE(copies.ok()) << copies.status();
    ASSERT_TRUE(reference->Run({copies->job()}).ok());
    ASSERT_TRUE(copies->WriteBack().ok());
    twin.Fetch();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(SameBits(want[i], *random.memory()[i])) << "seed " << seed << " memory " << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, 300);
}

TEST(HostCopiesTest, SaysWhatTheCopiesTake) {
  CopiesFixture f;
  RotaryJob job = f.InPlace(100);
  EXPECT_EQ(f.BytesFor(job), 25600) << "in place takes one copy";
  job.tensors[0].y += 32768;
  EXPECT_EQ(f.BytesFor(job), 51200);
  std::vector<std::byte> host(25600);
  job.tensors[0].y = host.data();
  EXPECT_EQ(f.BytesFor(job), 25600) << "what is on the host is used there";
  job.tensors[0].x = host.data();
  EXPECT_EQ(f.BytesFor(job), 0);
}

TEST(HostCopiesTest, ErrorsOfTheDriverAreReturnedAndNothingIsWritten) {
  CopiesFixture f;
  const RotaryJob job = f.InPlace(10);
  for (const std::string fails : {"CopyToHost", "Synchronize"}) {
    f.device->FailWith([&](const std::string& call, int64_t) {
      return call == fails ? absl::InternalError("refused") : absl::OkStatus();
    });
    EXPECT_EQ(f.Make(job).status().code(), absl::StatusCode::kInternal) << fails;
    EXPECT_EQ(f.exported->data()[0], std::byte{0});
  }
}

}  // namespace
}  // namespace phasor::cuda
