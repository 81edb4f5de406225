// SPDX-License-Identifier: Apache-2.0
// The rows of a job's tensors: which lanes travel, and where they are.
#include "kernels/cuda/job_rows.h"

#include <gtest/gtest.h>

#include "tests/support/fake_driver.h"
#include "tests/support/hand_plans.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;
using testing::MakeHandPlan;

struct RowsFixture {
  RowsFixture() {
    job.plan = plan.get();
    job.tokens = 5;
    job.tensors = {{Dtype::kFloat32, 3, host, {0, 600, 200}, host, {0, 600, 200}}};
  }

  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  FakeDriver driver{device};
  DeviceLife life{{}, [] { return absl::OkStatus(); }};
  DeviceMemory memory{&driver, &life};
  std::shared_ptr<testing::FakeExport> exported = device->Export(8192);
  std::shared_ptr<const DeviceAllocation> allocation = *memory.Open(exported->handle());
  // Heads of 50 lanes: 4 that do not rotate, 20 pairs, then 6 that do not rotate.
  std::shared_ptr<const Plan> plan = MakeHandPlan({.pairs = 20, .rotary_begin = 4, .tail = 6});
  alignas(64) std::byte host[5 * 600];
  RotaryJob job;
};

TEST(JobRowsTest, OnTheHostOnlyLanesThatRotateTravel) {
  RowsFixture f;
  const JobRows rows = RowsOfTensors(f.job, &f.memory);
  EXPECT_EQ(rows.place, Place::kHost);
  EXPECT_FALSE(rows.whole_heads);
  EXPECT_EQ(rows.in[0].base, f.host + 16);
  EXPECT_EQ(rows.in[0].bytes, 160);
}

TEST(JobRowsTest, WholeHeadsTravelToAnotherTypeAndNothingOfACopy) {
  RowsFixture f;
  f.job.tensors[0].dtype = Dtype::kBFloat16;
  f.job.tensors[0].float8 = Float8::kE4M3;
  f.job.tensors.push_back(f.job.tensors[0]);
  f.job.tensors[1].float8 = Float8::kNone;
  f.job.tensors[1].rotates = false;
  const JobRows rows = RowsOfTensors(f.job, &f.memory);
  EXPECT_EQ(rows.in[0].bytes, 100);
  EXPECT_EQ(rows.out[0].bytes, 50);
  EXPECT_EQ(rows.in[1].bytes, 0);
  EXPECT_EQ(rows.out[1].bytes, 0);
}

TEST(JobRowsTest, PagesOnTheDeviceKeepTheirOffsetsAndStandOnTheirOwnElements) {
  RowsFixture f;
  const int64_t offsets[] = {0, -1, 150, 300, 450};
  RotaryTensor& tensor = f.job.tensors[0];
  tensor = {Dtype::kBFloat16, 3, f.host, {0, 300, 100}, f.allocation->data() + 1, {600, 150, 50}};
  tensor.float8 = Float8::kE5M2;
  tensor.y_offsets = offsets;
  const JobRows rows = RowsOfTensors(f.job, &f.memory);
  EXPECT_EQ(rows.out[0].offsets, offsets);
  EXPECT_EQ(rows.out[0].bytes, 50);
  EXPECT_TRUE(rows.aligned) << "bytes need no alignment";
  tensor.float8 = Float8::kNone;
  EXPECT_FALSE(RowsOfTensors(f.job, &f.memory).aligned);
}

TEST(JobRowsTest, WithATensorOnTheDeviceHeadsAreWhole) {
  RowsFixture f;
  f.job.tensors.push_back(f.job.tensors[0]);
  f.job.tensors[1].y = f.allocation->data() + 512;
  const JobRows rows = RowsOfTensors(f.job, &f.memory);
  EXPECT_EQ(rows.place, Place::kDevice);
  EXPECT_TRUE(rows.whole_heads);
  EXPECT_TRUE(rows.aligned);
  EXPECT_EQ(rows.in[0].base, f.host);
  EXPECT_EQ(rows.in[0].bytes, 200);
  EXPECT_FALSE(rows.in[1].on_device);
  EXPECT_TRUE(rows.out[1].on_device);
  EXPECT_EQ(rows.out[1].base, f.allocation->data() + 512);
}

TEST(JobRowsTest, SeesMisalignedAddressesAndStridesOfTheDevice) {
  RowsFixture f;
  f.job.tensors[0].x = f.host + 1;  // the host allows any alignment
  f.job.tensors[0].y = f.allocation->data();
  EXPECT_TRUE(RowsOfTensors(f.job, &f.memory).aligned);
  f.job.tensors[0].y = f.allocation->data() + 2;
  EXPECT_FALSE(RowsOfTensors(f.job, &f.memory).aligned);
  f.job.tensors[0].y = f.allocation->data();
  f.job.tensors[0].y_strides.token = 602;
  EXPECT_FALSE(RowsOfTensors(f.job, &f.memory).aligned);
}

TEST(JobRowsTest, WhatIsGoneMakesTheJobGone) {
  RowsFixture f;
  f.job.tensors[0].y = f.allocation->data();
  f.life.Note(absl::UnavailableError("lost"));
  EXPECT_EQ(RowsOfTensors(f.job, &f.memory).place, Place::kGone);
}

}  // namespace
}  // namespace phasor::cuda
