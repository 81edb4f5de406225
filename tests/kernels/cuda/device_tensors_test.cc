// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on tensors that are in device memory already: computed in place, on copies if
// the device cannot, and never twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/text.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/items.h"
#include "kernels/request/request.h"
#include "tests/kernels/cuda/device_twin.h"
#include "tests/support/fake_driver.h"

namespace phasor::cuda {
namespace {

using testing::Chooser;
using testing::DeviceTwin;
using testing::FakeDevice;
using testing::FakeDriver;
using testing::MakeHandPlan;
using testing::RandomJob;
using testing::SameBits;
using testing::Tensor;

std::unique_ptr<Backend> MakeScalar() { return cpu::MakeCpuBackend({cpu::Target::kScalar, 1}); }

// A backend on a fake device that has opened memory of another process.
struct TensorsFixture {
  explicit TensorsFixture(int64_t chunk_bytes = 8 << 10, int64_t copied_bytes = 1 << 30)
      : backend(std::make_unique<FakeDriver>(device), MakeScalar(),
                {.chunk_bytes = chunk_bytes,
                 .slots = 2,
                 .least_bytes = int64_t{1} << 40,  // so tensors on the host never travel
                 .copied_bytes = copied_bytes,
                 .life = {.retry = true, .first_wait = std::chrono::milliseconds(0)}}) {
    allocation = *backend.Open(exported->handle());
  }
  JobResult Run(const Job& job) {
    JobResult result;
    backend.RunEach({&job, 1}, {&result, 1});
    return result;
  }

  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  std::shared_ptr<testing::FakeExport> exported = device->Export(int64_t{4} << 20);
  CudaBackend backend;
  std::shared_ptr<const DeviceAllocation> allocation;
};

TEST(DeviceTensorsTest, RandomJobsWhereverTheirTensorsLieHaveTheReferencesBytes) {
  const auto reference = MakeScalar();
  TensorsFixture small(4 << 10), large(8 << 20);
  int moved = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomJob random(seed, /*misaligned=*/seed % 2 == 0);
    ASSERT_TRUE(reference->Run({random.job()}).ok());
    const std::vector<Tensor> want = random.Now();
    moved += random.moves_lanes_in_place();
    for (TensorsFixture* const f : {&small, &large}) {
      random.Reset();
      DeviceTwin twin(f->exported);
      Chooser choose(seed);
      const bool all = choose.Coin();
      for (const auto& tensor : random.memory()) {
        if (all || choose.Coin()) twin.Move(tensor.get());
      }
      const JobResult result = f->Run(twin.Moved(random.job()));
      ASSERT_TRUE(result.status.ok()) << result.status;
      twin.Fetch();
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(SameBits(want[i], *random.memory()[i])) << "seed " << seed << " memory " << i;
      }
    }
  }
  EXPECT_GT(large.backend.state().jobs_in_device_memory, 250);
  EXPECT_GT(large.backend.state().jobs_not_for_device, 20) << "misaligned";
  EXPECT_EQ(large.backend.state().jobs_rescued, 0);
  EXPECT_EQ(large.backend.state().jobs_failed, 0);
  EXPECT_GT(small.backend.state().chunks, large.backend.state().chunks);
  EXPECT_GT(moved, 30);
}

// A rotation in place of 2 times 30 tokens of three heads on the device.
void ExpectInPlace(RotaryJob job, Dtype dtype, int64_t misalign) {
  constexpr int64_t kTokens = 30, kHeads = 3;
  TensorsFixture f;
  const int64_t lanes = job.plan->spec.head_dim, size = SizeOf(dtype);
  const int64_t token = (kHeads * lanes + 2 * misalign) * size;
  Tensor before(dtype, 2 * kTokens * token / size, misalign * size), want = before;
  before.Fill(7);
  std::memcpy(want.data(), before.data(), static_cast<size_t>(before.size_bytes()));
  job.batch = 2;
  job.tokens = kTokens;
  const RotaryStrides strides{kTokens * token, token, lanes * size};
  job.tensors = {{dtype, kHeads, want.data(), strides, want.data(), strides}};
  ASSERT_TRUE(MakeScalar()->Run({Job(job)}).ok());
  std::byte* const place = f.exported->data() + 1024 + misalign * size;
  std::memcpy(place, before.data(), static_cast<size_t>(before.size_bytes()));
  job.tensors[0].x = job.tensors[0].y = f.allocation->data() + 1024 + misalign * size;
  const JobResult result = f.Run(job);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.backend, "cuda");
  std::memcpy(before.data(), place, static_cast<size_t>(before.size_bytes()));
  ASSERT_TRUE(SameBits(want, before));
  const CudaState state = f.backend.state();
  EXPECT_EQ(state.jobs_in_device_memory, 1);
  EXPECT_EQ(state.launches, 1);
  EXPECT_EQ(f.device->calls("CopyToDevice"), 0) << "a small arena travels with the launch";
  EXPECT_EQ(f.device->calls("CopyToHost"), 0);
}

// DeepSeek, as transformers stores it, reads neighbours and writes halves.
TEST(DeviceTensorsTest, RotationsInPlaceFromOnePairingToTheOtherHaveTheReferencesBytes) {
  Spec spec;
  spec.preset = "deepseek-v3-hf";
  const auto deepseek = CompilePlan(*ResolveSpec(spec, "spec"));
  ASSERT_TRUE(deepseek.ok()) << deepseek.status();
  const auto odd = MakeHandPlan({.pairs = 21,
                                 .rotary_begin = 3,
                                 .tail = 5,
                                 .pairing = Pairing::kHalfSplit,
                                 .pairing_out = Pairing::kInterleaved});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{131000, 1, 60}}, 1, "positions");
  const PositionSource from = *MakePositionSource(AxisRange{IntegerRange{5, 2, 60}}, 1, "from");
  for (const Plan* const plan : {&**deepseek, static_cast<const Plan*>(odd.get())}) {
    for (const Dtype dtype : testing::kFloatDtypes) {
      for (const int64_t misalign : {0, 1}) {
        RotaryJob job;
        job.plan = plan;
        job.positions = &positions;
        for (const bool inverse : {false, true}) {
          SCOPED_TRACE(StrCat(Name(dtype), " misaligned ", misalign, " inverse ", inverse));
          job.inverse = inverse;
          ExpectInPlace(job, dtype, misalign);
        }
        // Keys stored in the order in which the model's projections produce them.
        Plan stored = *plan;
        stored.spec.pairing_out = plan->spec.pairing;
        job.inverse = false;
        job.from_plan = &stored;
        job.from_positions = &from;
        ExpectInPlace(job, dtype, misalign);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// 64 tokens of two heads on the device, in place or not.
class DeviceTurning {
 public:
  DeviceTurning(TensorsFixture& f, bool in_place, Pairing out = Pairing::kHalfSplit)
      : f_(f), in_place_(in_place), plan_(MakeHandPlan({.pairs = 32, .pairing_out = out})) {
    x_.Fill(1);
    job_.plan = plan_.get();
    job_.positions = &positions_;
    job_.tokens = 64;
    const RotaryStrides strides{0, 256, 128};
    Tensor y(Dtype::kBFloat16, 64 * 128);
    job_.tensors = {{Dtype::kBFloat16, 2, x_.data(), strides, y.data(), strides}};
    EXPECT_TRUE(MakeScalar()->Run({Job(job_)}).ok());
    want_ = y;
    job_.tensors[0].x = f.allocation->data() + 256;
    job_.tensors[0].y = f.allocation->data() + (in_place ? 256 : 65536);
    Reset();
  }
  Job job() const { return job_; }
  void Reset() { std::memcpy(f_.exported->data() + 256, x_.data(), 16384); }
  bool IsDone() const { return Holds(want_, in_place_ ? 256 : 65536); }
  bool SourceIsIntact() const { return Holds(x_, 256); }

 private:
  bool Holds(const Tensor& tensor, int64_t at) const {
    return std::memcmp(f_.exported->data() + at, tensor.data(), 16384) == 0;
  }

  TensorsFixture& f_;
  const bool in_place_;
  std::shared_ptr<const Plan> plan_;
  PositionSource positions_ =
      *MakePositionSource(AxisRange{IntegerRange{131000, 1, 64}}, 1, "positions");
  Tensor x_{Dtype::kBFloat16, 64 * 128}, want_{Dtype::kBFloat16, 64 * 128};
  RotaryJob job_;
};

TEST(DeviceTensorsTest, OneLaunchAndNoTensorIsCopied) {
  TensorsFixture f(1 << 20);
  DeviceTurning turning(f, /*in_place=*/true);
  const JobResult result = f.Run(turning.job());
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.backend, "cuda");
  EXPECT_TRUE(turning.IsDone());
  EXPECT_EQ(f.device->calls("Run"), 1);
  EXPECT_EQ(f.device->calls("CopyToDevice"), 0) << "a small arena travels with the launch";
  EXPECT_EQ(f.device->calls("CopyToHost"), 0);
  EXPECT_EQ(f.backend.state().jobs_in_device_memory, 1);
}

TEST(DeviceTensorsTest, ALaterCallIsALaunchAndAWait) {
  TensorsFixture f(1 << 20);
  DeviceTurning turning(f, /*in_place=*/true);
  const auto count = [&] {
    std::vector<int64_t> counts;
    for (const char* const call : {"Run", "Synchronize", "CreateStream", "Allocate",
                                   "AllocatePinned", "CopyToDevice", "CopyToHost"}) {
      counts.push_back(f.device->calls(call));
    }
    return counts;
  };
  ASSERT_TRUE(f.Run(turning.job()).status.ok());
  std::vector<int64_t> want = count();
  ++want[0];
  ++want[1];
  turning.Reset();
  ASSERT_TRUE(f.Run(turning.job()).status.ok());
  EXPECT_TRUE(turning.IsDone());
  EXPECT_EQ(count(), want);
}

// Keys and values of 24 tokens go to pages of 4 slots; checks all of the device's memory.
TEST(DeviceTensorsTest, KeysAndValuesGoToPagesOfTheDeviceWhereTheyLie) {
  constexpr int64_t kSlot = 2 * 64, kValues = 8192, kKeyPages = 16384, kValuePages = 32768;
  TensorsFixture f(1 << 20);
  const auto plan = MakeHandPlan({.pairs = 32});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{131000, 1, 24}}, 1, "positions");
  for (const Float8 type : {Float8::kNone, Float8::kE4M3}) {
    const int64_t size = type == Float8::kNone ? 2 : 1;
    std::vector<int64_t> offsets;
    for (int64_t t = 0; t < 24; ++t) offsets.push_back(t % 9 == 4 ? -1 : t * 7 % 32 * kSlot * size);
    const auto job_on = [&](std::byte* memory) {
      RotaryJob job;
      job.plan = plan.get();
      job.positions = &positions;
      job.tokens = 24;
      const RotaryStrides from{0, 2 * kSlot, 128};
      const RotaryStrides to{4 * kSlot * size, kSlot * size, 64 * size};
      job.tensors = {{Dtype::kBFloat16, 2, memory, from, memory + kKeyPages, to},
                     {Dtype::kBFloat16, 2, memory + kValues, from, memory + kValuePages, to}};
      for (RotaryTensor& tensor : job.tensors) {
        tensor.float8 = type;
        tensor.y_offsets = offsets.data();
      }
      job.tensors[1].rotates = false;
      return Job(job);
    };
    Tensor want(Dtype::kBFloat16, 24576);
    want.Fill(5);
    std::memcpy(f.exported->data(), want.data(), static_cast<size_t>(want.size_bytes()));
    ASSERT_TRUE(MakeScalar()->Run({job_on(want.data())}).ok());
    const int64_t runs = f.device->calls("Run"), to_device = f.device->calls("CopyToDevice");
    const JobResult result = f.Run(job_on(f.allocation->data()));
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.backend, "cuda");
    EXPECT_EQ(std::memcmp(f.exported->data(), want.data(), static_cast<size_t>(want.size_bytes())),
              0);
    EXPECT_EQ(f.device->calls("Run") - runs, 1);
    EXPECT_EQ(f.device->calls("CopyToDevice"), to_device) << "offsets travel with the launch";
    EXPECT_EQ(f.device->calls("CopyToHost"), 0);
  }
}

TEST(DeviceTensorsTest, JobsOfTheHostInTheSameRunStayThere) {
  TensorsFixture f(1 << 20);
  DeviceTurning turning(f, /*in_place=*/true);
  RandomJob random(3);
  ASSERT_TRUE(MakeScalar()->Run({random.job()}).ok());
  const std::vector<Tensor> want = random.Now();
  random.Reset();
  const Job jobs[] = {random.job(), turning.job()};
  JobResult results[2];
  f.backend.RunEach(jobs, results);
  EXPECT_TRUE(results[0].status.ok() && results[1].status.ok());
  EXPECT_EQ(results[0].backend, "cpu");
  EXPECT_EQ(results[1].backend, "cuda");
  EXPECT_TRUE(SameBits(want[0], *random.memory()[0]));
  EXPECT_TRUE(turning.IsDone());
}

constexpr const char* kCallsOnDevice[] = {
    "CreateStream", "AllocatePinned", "Allocate", "CopyToDevice", "Run", "Synchronize"};

// Every call of a run with two chunks fails once. The bytes must be right, or the error must be
// true: a source that is reported intact is intact. To change the pairing, one launch copies before
// one rotates.
TEST(DeviceTensorsTest, EveryFaultAtEveryCallIsAnsweredByTheCpuOrAborted) {
  int answered = 0, aborted = 0;
  for (const auto& [in_place, out] :
       {std::pair(false, Pairing::kHalfSplit), std::pair(true, Pairing::kHalfSplit),
        std::pair(true, Pairing::kInterleaved)}) {
    for (const char* call : kCallsOnDevice) {
      for (int64_t number = 0; number < 3; ++number) {
        for (const auto code : {absl::StatusCode::kResourceExhausted, absl::StatusCode::kInternal,
                                absl::StatusCode::kUnavailable}) {
          const std::string what = StrCat(call, " ", number, " in place ", in_place);
          TensorsFixture f(4 << 10);
          DeviceTurning turning(f, in_place, out);
          bool failed = false;
          f.device->FailWith([&](const std::string& name, int64_t n) {
            if (name != call || n != number) return absl::OkStatus();
            failed = true;
            return absl::Status(code, StrCat(name, " ", n));
          });
          const JobResult result = f.Run(turning.job());
          const bool lost = failed && code == absl::StatusCode::kUnavailable;
          EXPECT_EQ(f.allocation->usable(), !lost) << what;
          if (result.status.ok()) {
            EXPECT_FALSE(lost) << what;
            EXPECT_TRUE(turning.IsDone()) << what;
            EXPECT_EQ(result.backend, failed ? "cpu" : "cuda") << what;
            answered += failed;
            continue;
          }
          EXPECT_EQ(result.status.code(), absl::StatusCode::kAborted) << what;
          EXPECT_TRUE(lost || in_place) << what;
          EXPECT_FALSE(result.intact) << what;
          EXPECT_TRUE(in_place || turning.SourceIsIntact()) << what;
          ++aborted;
        }
      }
    }
  }
  EXPECT_GT(answered, 20);
  EXPECT_GT(aborted, 10);
}

TEST(DeviceTensorsTest, TensorsOfNoHeadsAreNoTrip) {
  TensorsFixture f;
  DeviceTurning turning(f, /*in_place=*/true);
  Job job = turning.job();
  std::get<RotaryJob>(job).tensors[0].heads = 0;
  const JobResult result = f.Run(job);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(turning.SourceIsIntact());
  EXPECT_EQ(f.backend.state().chunks, 0);
  EXPECT_EQ(f.device->calls("CopyToHost"), 0);
}

TEST(DeviceTensorsTest, WhenNobodyCanReadTheSourceTheJobMayBeTriedAgain) {
  TensorsFixture f;
  DeviceTurning turning(f, /*in_place=*/true);
  f.device->FailWith([](const std::string& call, int64_t) {
    return call == "Run" || call == "CopyToHost" ? absl::InternalError("refused")
                                                 : absl::OkStatus();
  });
  const JobResult result = f.Run(turning.job());
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(result.intact);
  EXPECT_TRUE(turning.SourceIsIntact());
  f.device->FailWith(nullptr);
  EXPECT_TRUE(f.Run(turning.job()).status.ok());
  EXPECT_TRUE(turning.IsDone());
}

TEST(DeviceTensorsTest, WhenNobodyCanWriteTheResultTheJobIsHalfDone) {
  TensorsFixture f;
  DeviceTurning turning(f, /*in_place=*/true);
  f.device->FailWith([](const std::string& call, int64_t) {
    return call == "Run" || call == "CopyToDevice" ? absl::InternalError("refused")
                                                   : absl::OkStatus();
  });
  const JobResult result = f.Run(turning.job());
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(result.intact);
}

// The device refuses all kernels, so the CPU needs a copy of the 16384 bytes that rotate in place.
TEST(DeviceTensorsTest, CopiesForTheCpuAreOfTheBudget) {
  TensorsFixture f;
  DeviceTurning turning(f, /*in_place=*/true);
  f.device->FailWith([](const std::string& call, int64_t) {
    return call == "Run" ? absl::InternalError("refused") : absl::OkStatus();
  });
  int64_t taken = 0;
  f.backend.SetCopyBudget([&](int64_t bytes) -> absl::StatusOr<HostMemoryShare> {
    return absl::UnavailableError(StrCat("no room for ", bytes));
  });
  const int64_t copies = f.device->calls("CopyToHost");
  const JobResult refused = f.Run(turning.job());
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.status.message()), ::testing::HasSubstr("no room for 16384"));
  EXPECT_TRUE(refused.intact);
  EXPECT_TRUE(turning.SourceIsIntact());
  EXPECT_TRUE(f.allocation->usable()) << "the device was not lost";
  EXPECT_EQ(f.device->calls("CopyToHost"), copies);

  int64_t most = 0;
  f.backend.SetCopyBudget([&](int64_t bytes) -> absl::StatusOr<HostMemoryShare> {
    taken += bytes;
    most = std::max(most, taken);
    return HostMemoryShare(&taken, [bytes](int64_t* all) { *all -= bytes; });
  });
  EXPECT_TRUE(f.Run(turning.job()).status.ok());
  EXPECT_TRUE(turning.IsDone());
  EXPECT_EQ(most, 16384);
  EXPECT_EQ(taken, 0) << "given back with the copies";
}

TEST(DeviceTensorsTest, ATooLargeCopyIsNotTriedAgain) {
  TensorsFixture f(8 << 10, /*copied_bytes=*/16383);
  DeviceTurning turning(f, /*in_place=*/true);
  f.device->FailWith([](const std::string& call, int64_t) {
    return call == "Run" ? absl::InternalError("refused") : absl::OkStatus();
  });
  const JobResult result = f.Run(turning.job());
  EXPECT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(result.intact);
  EXPECT_TRUE(turning.SourceIsIntact());
}

TEST(DeviceTensorsTest, OneThatFailsSpoilsNoOther) {
  TensorsFixture f(1 << 20);
  DeviceTurning gone(f, /*in_place=*/true);
  const Job lost = gone.job();
  // The device is lost and revived. What is open after that is another allocation.
  f.device->FailWith([](const std::string& call, int64_t n) {
    return call == "Synchronize" && n == 0 ? absl::UnavailableError("lost") : absl::OkStatus();
  });
  EXPECT_EQ(f.Run(lost).status.code(), absl::StatusCode::kAborted);
  f.backend.Retry();
  const auto other = f.device->Export(1 << 20);
  const auto allocation = f.backend.Open(other->handle());
  ASSERT_TRUE(allocation.ok()) << allocation.status();
  EXPECT_EQ(f.backend.device_state().revivals, 1);
  const auto plan = MakeHandPlan({.pairs = 32});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, 4}}, 1, "positions");
  RotaryJob good;
  good.plan = plan.get();
  good.positions = &positions;
  good.tokens = 4;
  std::byte* const at = (*allocation)->data();
  good.tensors = {{Dtype::kFloat32, 1, at, {0, 256, 256}, at, {0, 256, 256}}};
  const Job jobs[] = {lost, good};
  JobResult results[2];
  f.backend.RunEach(jobs, results);
  EXPECT_EQ(results[0].status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(results[1].status.ok()) << results[1].status;
  EXPECT_EQ(results[1].backend, "cuda");
  EXPECT_EQ(f.backend.Run(jobs).code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace phasor::cuda
