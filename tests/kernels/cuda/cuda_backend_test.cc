// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on a fake device: the bytes are the reference's, however jobs are cut into
// chunks and whatever fails; memory is bounded; chunks overlap.
#include "kernels/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "kernels/base/text.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/request/move_keys.h"
#include "tests/support/fake_driver.h"
#include "tests/support/random_jobs.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;
using testing::MakeHandPlan;
using testing::RandomJob;
using testing::SameBits;
using testing::Tensor;

std::unique_ptr<Backend> MakeReference() { return cpu::MakeCpuBackend({cpu::Target::kScalar, 1}); }

// A backend and its fake device.
struct Fixture {
  explicit Fixture(int64_t chunk_bytes, int64_t least_bytes = 0, int slots = 2)
      : backend(std::make_unique<FakeDriver>(device), MakeReference(),
                {.chunk_bytes = chunk_bytes, .slots = slots, .least_bytes = least_bytes}) {}

  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  CudaBackend backend;
};

std::vector<Tensor> RunOn(Backend& backend, RandomJob& random) {
  random.Reset();
  EXPECT_TRUE(backend.Run({random.job()}).ok());
  return random.Now();
}

::testing::AssertionResult Same(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (!got[i].GuardsIntact()) return ::testing::AssertionFailure() << "guards of " << i;
    if (auto same = SameBits(want[i], got[i]); !same) return same << " in memory " << i;
  }
  return ::testing::AssertionSuccess();
}

// 64 tokens of two heads, 16 KiB, in place or not. They need several chunks of 8 KiB.
class Turning {
 public:
  explicit Turning(bool in_place) : in_place_(in_place) {
    x_.Fill(1);
    before_ = x_;
    job_.plan = plan_.get();
    job_.positions = &positions_;
    job_.tokens = 64;
    const RotaryStrides strides{0, 256, 128};
    job_.tensors = {
        {Dtype::kBFloat16, 2, x_.data(), strides, in_place ? x_.data() : y_.data(), strides}};
    const auto reference = MakeReference();
    EXPECT_TRUE(reference->Run({job()}).ok());
    want_ = out();
    Reset();
  }
  Job job() const { return job_; }
  void Reset() {
    x_.Fill(1);
    if (!in_place_) y_.Fill(2);
  }
  const Tensor& out() const { return in_place_ ? x_ : y_; }
  ::testing::AssertionResult IsRight() const { return SameBits(want_, out()); }

 private:
  const bool in_place_;
  std::shared_ptr<const Plan> plan_ = MakeHandPlan({.pairs = 32});
  PositionSource positions_ =
      *MakePositionSource(AxisRange{IntegerRange{131000, 1, 64}}, 1, "positions");
  Tensor x_{Dtype::kBFloat16, 64 * 128}, y_{Dtype::kBFloat16, 64 * 128};
  Tensor before_ = x_, want_ = x_;
  RotaryJob job_;
};

TEST(CudaBackendTest, RandomJobsHaveTheReferencesBytesInChunksOfAnySize) {
  const auto reference = MakeReference();
  Fixture small(16 << 10), large(8 << 20);
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomJob random(seed, /*misaligned=*/true);
    const auto want = RunOn(*reference, random);
    ASSERT_TRUE(Same(want, RunOn(small.backend, random))) << "seed " << seed;
    ASSERT_TRUE(Same(want, RunOn(large.backend, random))) << "seed " << seed;
  }
  EXPECT_GT(small.backend.state().chunks, large.backend.state().chunks);
  EXPECT_GT(small.backend.state().jobs_on_device, 200);
  EXPECT_GT(large.backend.state().jobs_on_device, 330);
}

TEST(CudaBackendTest, ManyRequestsAreOneTripWithOneLaunchPerKernel) {
  Fixture f(8 << 20);
  const auto plan = MakeHandPlan({.pairs = 32});
  const PositionSource position =
      *MakePositionSource(AxisRange{IntegerRange{4711, 1, 1}}, 1, "positions");
  std::vector<Tensor> tensors(256, Tensor(Dtype::kFloat16, 8 * 64));
  std::vector<Tensor> want;
  std::vector<Job> jobs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].Fill(i);
    RotaryJob job;
    job.plan = plan.get();
    job.positions = &position;
    job.tokens = 1;
    const RotaryStrides strides{0, 8 * 128, 128};
    job.tensors = {{Dtype::kFloat16, 8, tensors[i].data(), strides, tensors[i].data(), strides}};
    jobs.push_back(job);
  }
  const std::vector<Tensor> before = tensors;
  ASSERT_TRUE(MakeReference()->Run(jobs).ok());
  for (size_t i = 0; i < tensors.size(); ++i) {
    want.push_back(tensors[i]);
    std::memcpy(tensors[i].data(), before[i].data(), before[i].size_bytes());
  }
  ASSERT_TRUE(f.backend.Run(jobs).ok());
  for (size_t i = 0; i < tensors.size(); ++i) ASSERT_TRUE(SameBits(want[i], tensors[i])) << i;
  EXPECT_EQ(f.device->calls("Run"), 1);
  EXPECT_EQ(f.device->calls("CopyToDevice"), 1);
  EXPECT_EQ(f.device->calls("CopyToHost"), 1);
}

TEST(CudaBackendTest, MemoryIsBoundedAndChunksOverlap) {
  Fixture f(64 << 10, 0, /*slots=*/4);
  const auto plan = MakeHandPlan({.pairs = 32});
  const int64_t tokens = 20000;
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, tokens}}, 1, "positions");
  Tensor x(Dtype::kFloat32, tokens * 64);
  x.Fill(3);
  Tensor want = x;
  const auto job_on = [&](Tensor& t) {
    RotaryJob job;
    job.plan = plan.get();
    job.positions = &positions;
    job.tokens = tokens;
    job.tensors = {{Dtype::kFloat32, 1, t.data(), {0, 256, 256}, t.data(), {0, 256, 256}}};
    return Job(job);
  };
  ASSERT_TRUE(MakeReference()->Run({job_on(want)}).ok());
  ASSERT_TRUE(f.backend.Run({job_on(x)}).ok());
  EXPECT_TRUE(SameBits(want, x));
  EXPECT_GE(f.backend.state().chunks, 80);
  EXPECT_EQ(f.device->most_busy_streams(), 2);
  EXPECT_LE(f.device->peak_bytes(), 2 * 4 * (int64_t{1} << 20))
      << "two slots, one call has no more";
}

TEST(CudaBackendTest, WhatTheDeviceCannotDoRunsElsewhere) {
  Fixture f(8 << 10);
  Turning fits(/*in_place=*/true);
  ASSERT_TRUE(f.backend.Run({fits.job()}).ok());
  EXPECT_TRUE(fits.IsRight());
  EXPECT_EQ(f.backend.state().jobs_on_device, 1);
  Fixture tiny(1 << 9);  // less than a row
  Turning large(/*in_place=*/true);
  ASSERT_TRUE(tiny.backend.Run({large.job()}).ok());
  EXPECT_TRUE(large.IsRight());
  EXPECT_EQ(tiny.backend.state().jobs_not_for_device, 1);
  EXPECT_EQ(tiny.device->calls("Run"), 0);
}

// Values on the host are copied there, and tensors may have no heads. The fake device ends the test
// if it is given an empty trip.
TEST(CudaBackendTest, WhatHasNothingForTheDeviceIsNotSentThere) {
  const auto plan = MakeHandPlan({.pairs = 32});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, 6}}, 1, "positions");
  const RotaryStrides strides{0, 128, 128};
  Tensor values(Dtype::kBFloat16, 6 * 64), copy(Dtype::kBFloat16, 6 * 64);
  values.Fill(4);
  RotaryJob copies;
  copies.plan = plan.get();
  copies.positions = &positions;
  copies.tokens = 6;
  RotaryJob no_heads = copies, no_tensors = copies;
  copies.tensors = {{Dtype::kBFloat16, 1, values.data(), strides, copy.data(), strides}};
  copies.tensors[0].rotates = false;
  no_heads.tensors = {{Dtype::kBFloat16, 0, values.data(), strides, values.data(), strides}};
  Fixture f(8 << 10);
  copy.Fill(5);
  JobResult results[3];
  f.backend.RunEach({copies, no_heads, no_tensors}, results);
  for (const JobResult& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.backend, "cpu");
  }
  EXPECT_TRUE(SameBits(values, copy));
  EXPECT_EQ(f.backend.state().chunks, 0);
  EXPECT_EQ(f.backend.state().jobs_not_for_device, 3);
  Turning turning(/*in_place=*/true);
  ASSERT_TRUE(f.backend.Run({copies, turning.job(), no_heads}).ok());
  EXPECT_TRUE(turning.IsRight());
  EXPECT_EQ(f.backend.state().jobs_on_device, 1);
}

TEST(CudaBackendTest, SmallBatchesDoNotTravel) {
  Fixture f(8 << 20, /*least_bytes=*/1 << 20);
  Turning turning(/*in_place=*/false);
  ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
  EXPECT_TRUE(turning.IsRight());
  EXPECT_EQ(f.device->calls("CreateStream"), 0);
  EXPECT_EQ(f.backend.state().jobs_not_for_device, 1);
}

constexpr const char* kCalls[] = {"CreateStream", "AllocatePinned", "Allocate",   "CopyToDevice",
                                  "Run",          "CopyToHost",     "Synchronize"};

// Every call that a job makes fails once, with every kind of error, in place or not.
TEST(CudaBackendTest, EveryFaultAtEveryCallLeavesTheRightBytes) {
  for (const bool in_place : {false, true}) {
    Fixture whole(8 << 10);
    Turning turning(in_place);
    ASSERT_TRUE(whole.backend.Run({turning.job()}).ok());
    ASSERT_TRUE(turning.IsRight());
    ASSERT_GE(whole.backend.state().chunks, 3);
    for (const char* call : kCalls) {
      const int64_t times = whole.device->calls(call);
      ASSERT_GT(times, 0) << call;
      for (int64_t number = 0; number < times; ++number) {
        for (const auto code : {absl::StatusCode::kResourceExhausted, absl::StatusCode::kInternal,
                                absl::StatusCode::kUnavailable}) {
          Fixture f(8 << 10);
          f.device->FailWith([&](const std::string& name, int64_t n) {
            return name == call && n == number ? absl::Status(code, StrCat(name, " ", n))
                                               : absl::OkStatus();
          });
          turning.Reset();
          ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
          ASSERT_TRUE(turning.IsRight()) << call << " " << number << " in place " << in_place;
          const CudaState state = f.backend.state();
          EXPECT_EQ(state.jobs_rescued, 1) << call << " " << number;
          EXPECT_EQ(state.last_error, StrCat(call, " ", number));
          EXPECT_EQ(f.backend.device_state().losses, code == absl::StatusCode::kUnavailable);
        }
      }
    }
  }
}

TEST(CudaBackendTest, IfStrictNobodyComputesWhatTheDeviceFailed) {
  for (const bool in_place : {false, true}) {
    Turning turning(in_place);
    for (const char* call : kCalls) {
      const auto device = std::make_shared<testing::FakeDevice>();
      CudaBackend backend(std::make_unique<testing::FakeDriver>(device),
                          cpu::MakeCpuBackend({cpu::Target::kScalar, 1}),
                          {.chunk_bytes = 8 << 10, .least_bytes = 0, .strict = true});
      device->FailWith([&](const std::string& name, int64_t n) {
        return name == call && n == 0 ? absl::InternalError(name) : absl::OkStatus();
      });
      turning.Reset();
      EXPECT_EQ(backend.Run({turning.job()}), absl::InternalError(call));
      EXPECT_EQ(backend.state().jobs_failed, 1);
      turning.Reset();
      EXPECT_TRUE(backend.Run({turning.job()}).ok());
      EXPECT_TRUE(turning.IsRight());
      EXPECT_EQ(backend.state().jobs_on_device, 1);
    }
  }
}

// Tensors on the host stay there if the backend is told so, however large they are.
TEST(CudaBackendTest, TensorsOfTheHostStayThereUnlessTheyAreToTravel) {
  const auto device = std::make_shared<FakeDevice>();
  CudaBackend backend(std::make_unique<FakeDriver>(device), MakeReference(),
                      {.least_bytes = 0, .host_tensors = false});
  Turning turning(/*in_place=*/true);
  ASSERT_TRUE(backend.Run({turning.job()}).ok());
  EXPECT_TRUE(turning.IsRight());
  EXPECT_EQ(device->calls("Run"), 0);
  EXPECT_EQ(backend.state().jobs_sooner_on_host, 1);
  EXPECT_EQ(backend.batch_policy().bytes, 0) << "there is nothing to gather for";
}

TEST(CudaBackendTest, AfterAnErrorThatPassesTheDeviceIsUsedAgain) {
  Fixture f(8 << 10);
  f.device->FailWith([](const std::string& call, int64_t n) {
    return call == "Run" && n == 0 ? absl::InternalError("refused") : absl::OkStatus();
  });
  Turning turning(/*in_place=*/false);
  ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
  EXPECT_EQ(f.backend.state().jobs_rescued, 1);
  turning.Reset();
  ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
  EXPECT_TRUE(turning.IsRight());
  EXPECT_EQ(f.backend.state().jobs_on_device, 1);
}

TEST(CudaBackendTest, ALostDeviceIsNotAskedAgain) {
  Fixture f(8 << 10);
  f.device->FailWith([](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::UnavailableError("fell off the bus") : absl::OkStatus();
  });
  Turning turning(/*in_place=*/true);
  ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
  EXPECT_TRUE(turning.IsRight());
  EXPECT_EQ(f.backend.device_state().kind, DeviceState::Kind::kLost);
  EXPECT_EQ(f.backend.state().last_error, "fell off the bus");
  const int64_t launches = f.device->calls("Run");
  turning.Reset();
  ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
  EXPECT_TRUE(turning.IsRight());
  EXPECT_EQ(f.device->calls("Run"), launches);
  EXPECT_EQ(f.backend.state().jobs_not_for_device, 1);
}

TEST(CudaBackendTest, CountsSayWhoComputedAndWhetherTheDeviceIsStillUsed) {
  Fixture f(8 << 20, /*least_bytes=*/8 << 10);
  EXPECT_TRUE(MakeReference()->devices().empty());
  Turning turning(/*in_place=*/false);
  ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
  f.device->FailWith([](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::UnavailableError("fell off the bus") : absl::OkStatus();
  });
  EXPECT_TRUE(f.backend.device_counts().usable);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
  const DeviceCounts counts = f.backend.device_counts();
  EXPECT_FALSE(counts.usable);
  EXPECT_EQ(counts.jobs, 1);
  EXPECT_EQ(counts.jobs_that_it_failed, 1);
  EXPECT_EQ(counts.jobs_not_for_it, 2);
}

TEST(CudaBackendTest, RandomFaultsInRandomBatchesLeaveTheRightBytes) {
  const auto reference = MakeReference();
  testing::Chooser choose(5);
  int64_t rescued = 0;
  for (uint64_t round = 0; round < 60; ++round) {
    std::vector<std::unique_ptr<RandomJob>> randoms;
    std::vector<Job> jobs;
    std::vector<std::vector<Tensor>> want;
    for (uint64_t i = 0; i < 6; ++i) {
      randoms.push_back(std::make_unique<RandomJob>(round * 100 + i, /*misaligned=*/true));
      jobs.push_back(randoms.back()->job());
      want.push_back(RunOn(*reference, *randoms.back()));
      randoms.back()->Reset();
    }
    Fixture f(32 << 10);
    const std::string call = choose.Of(kCalls);
    const int64_t number = choose.Between(0, 5);
    f.device->FailWith([&](const std::string& name, int64_t n) -> absl::Status {
      if (name != call || n != number) return absl::OkStatus();
      return round % 2 == 0 ? absl::UnavailableError("lost") : absl::InternalError("refused");
    });
    ASSERT_TRUE(f.backend.Run(jobs).ok());
    for (size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_TRUE(Same(want[i], randoms[i]->Now())) << "round " << round << " job " << i;
    }
    rescued += f.backend.state().jobs_rescued;
  }
  EXPECT_GT(rescued, 60);
}

// A job whose tensors arrived in pieces may begin again, because the pieces still exist.
TEST(CudaBackendTest, PiecesAreGatheredAndSurviveFaults) {
  const auto plan = MakeHandPlan({.pairs = 30, .rotary_begin = 2, .tail = 2});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{7, 1, 100}}, 1, "positions");
  Tensor x(Dtype::kFloat32, 100 * 64), want(Dtype::kFloat32, 100 * 64);
  x.Fill(9);
  const absl::Span<const std::byte> whole(x.data(), static_cast<size_t>(x.size_bytes()));
  const std::vector<absl::Span<const std::byte>> pieces = {
      whole.subspan(0, 1001), whole.subspan(1001, 0), whole.subspan(1001)};
  const auto job_to = [&](Tensor& y) {
    RotaryJob job;
    job.plan = plan.get();
    job.positions = &positions;
    job.tokens = 100;
    job.tensors = {{Dtype::kFloat32, 1, nullptr, {}, y.data(), {0, 256, 256}, pieces}};
    return Job(job);
  };
  ASSERT_TRUE(MakeReference()->Run({job_to(want)}).ok());
  for (const int64_t fail_at : {-1, 0, 2}) {
    Fixture f(8 << 10);
    f.device->FailWith([&](const std::string& call, int64_t n) {
      return call == "Synchronize" && n == fail_at ? absl::UnavailableError("lost")
                                                   : absl::OkStatus();
    });
    Tensor y(Dtype::kFloat32, 100 * 64);
    ASSERT_TRUE(f.backend.Run({job_to(y)}).ok());
    EXPECT_TRUE(SameBits(want, y)) << fail_at;
    EXPECT_EQ(f.backend.state().jobs_rescued, fail_at < 0 ? 0 : 1);
  }
}

TEST(CudaBackendTest, CallersShareSlotsAndGetTheirOwnBytes) {
  Fixture f(8 << 10);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Turning turning(/*in_place=*/i % 2 == 0);
      for (int n = 0; n < 10; ++n) {
        turning.Reset();
        EXPECT_TRUE(f.backend.Run({turning.job()}).ok());
        EXPECT_TRUE(turning.IsRight());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(f.device->calls("CreateStream"), 2);
  EXPECT_EQ(f.backend.state().jobs_on_device, 40);
}

TEST(CudaBackendTest, MemoryIsGivenBackAtTheEnd) {
  std::shared_ptr<FakeDevice> device;
  {
    Fixture f(8 << 10);
    device = f.device;
    Turning turning(/*in_place=*/true);
    ASSERT_TRUE(f.backend.Run({turning.job()}).ok());
    EXPECT_GT(device->bytes(), 0);
  }
  EXPECT_EQ(device->bytes(), 0);
}

TEST(CudaBackendTest, SaysWhatItRunsOn) {
  Fixture f(8 << 10);
  EXPECT_EQ(f.backend.name(), "cuda");
  EXPECT_EQ(f.backend.target(), "SCALAR") << "of the CPU";
  EXPECT_EQ(f.backend.device_name(), "Fake GPU");
  EXPECT_EQ(f.backend.device_uuid(), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
}

TEST(CudaBackendTest, KeysInHostMemoryAreMovedByTheOtherBackend) {
  const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
  MoveRequest request;
  request.pools = {128};
  request.layouts = {{.code = KeyCode::kFloat32, .pages = 4, .heads = 1, .head_dim = 8}};
  request.specs = {{.spec = {.preset = "rope-half-split"}}};
  request.layers = {{.spec = 0}};
  request.groups = {{.runs = {{.block_table = {2}, .count = 1, .to = 9}}}};
  request.mode = MoveMode::kMove;
  const auto prepared = PrepareMove(request, plans, "item");
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto moved_by = [&](Backend& backend) {
    std::vector<float> keys(32, 1);
    std::byte* const pool = reinterpret_cast<std::byte*>(keys.data());
    const Job job = MakeMoveJob(*prepared, {&pool, 1}, nullptr);
    JobResult result;
    backend.RunEach({&job, 1}, {&result, 1});
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.backend, "cpu");
    return keys;
  };
  Fixture f(1 << 20);
  const std::vector<float> moved = moved_by(f.backend);
  EXPECT_EQ(moved, moved_by(*MakeReference()));
  EXPECT_NE(moved[16], 1);
  EXPECT_EQ(f.backend.state().jobs_not_for_device, 1);
}

}  // namespace
}  // namespace phasor::cuda
