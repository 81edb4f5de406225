// SPDX-License-Identifier: Apache-2.0
// A backend over several fake GPUs: where jobs run, whatever is lost, and which devices are opened.
#include "kernels/devices_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <thread>

#include "kernels/base/text.h"
#include "kernels/cuda/items.h"
#include "tests/kernels/cuda/device_twin.h"
#include "tests/support/device_backends.h"
#include "tests/support/random_moves.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::AllOf;
using testing::Chooser;
using testing::DeviceBackends;
using testing::DeviceTwin;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::MakeHandPlan;
using testing::RandomJob;
using testing::SameBits;
using testing::StatusIs;
using testing::Tensor;

cuda::CudaBackendOptions FakeGpuOptions() {
  return {.chunk_bytes = int64_t{64} << 10,
          .slots = 2,
          .least_bytes = 0,
          .life = {.retry = true, .first_wait = std::chrono::milliseconds(0)}};
}

// What threads wait for. Threads: any.
class Gate {
 public:
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class DevicesBackendTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 64;
  static constexpr int64_t kBytes = kTokens * 2 * 64 * 2;  // of two heads of 64 lanes
  static constexpr int64_t kJobBytes = 2 * kBytes;         // read and written

  explicit DevicesBackendTest(int64_t portion_bytes = int64_t{32} << 20)
      : gpus_(4, FakeGpuOptions(), portion_bytes) {
    x_.Fill(1);
    want_ = x_;
    const Job job = JobOn(x_.data(), want_.data());
    EXPECT_THAT(cpu::MakeCpuBackend({cpu::Target::kScalar, 1})->Run({job}), IsOk());
    for (size_t i = 0; i < gpus_.size(); ++i) {
      exports_.push_back(gpus_.device(i).Export(kBytes));
      memory_.push_back(*gpus_.cuda(i).Open(exports_[i]->handle()));
      std::memcpy(exports_[i]->data(), x_.data(), static_cast<size_t>(kBytes));
    }
  }

  Job JobOn(const std::byte* x, std::byte* y) const {
    RotaryJob job;
    job.plan = plan_.get();
    job.positions = &positions_;
    job.tokens = kTokens;
    const RotaryStrides strides{0, 256, 128};
    job.tensors = {{Dtype::kBFloat16, 2, x, strides, y, strides}};
    return job;
  }
  // In place in the memory of a device.
  Job JobIn(size_t device) const { return JobOn(memory_[device]->data(), memory_[device]->data()); }
  Job HostJob(Tensor* y) const { return JobOn(x_.data(), y->data()); }

  std::vector<JobResult> Run(const std::vector<Job>& jobs) {
    std::vector<JobResult> results(jobs.size());
    gpus_.backend().RunEach(jobs, absl::MakeSpan(results));
    return results;
  }
  bool IsWanted(size_t device) const {
    return std::memcmp(exports_[device]->data(), want_.data(), static_cast<size_t>(kBytes)) == 0;
  }
  // Jobs that each device computed.
  std::vector<int64_t> Jobs() {
    std::vector<int64_t> jobs;
    for (size_t i = 0; i < gpus_.size(); ++i) jobs.push_back(gpus_.cuda(i).device_counts().jobs);
    return jobs;
  }
  // Makes a device wait in its next trip.
  void Hold(size_t device, Gate* reached, Gate* leave) {
    gpus_.device(device).FailWith([reached, leave](const std::string& call, int64_t) {
      if (call == "Synchronize") {
        reached->Open();
        leave->Wait();
      }
      return absl::OkStatus();
    });
  }

  std::shared_ptr<const Plan> plan_ = MakeHandPlan({.pairs = 32});
  PositionSource positions_ =
      *MakePositionSource(AxisRange{IntegerRange{131000, 1, kTokens}}, 1, "positions");
  Tensor x_{Dtype::kBFloat16, kTokens * 128}, want_ = x_;
  DeviceBackends gpus_;
  std::vector<std::shared_ptr<testing::FakeExport>> exports_;
  std::vector<std::shared_ptr<const DeviceAllocation>> memory_;
};

TEST_F(DevicesBackendTest, JobsRunWhereTheirMemoryIs) {
  for (const JobResult& result : Run({JobIn(3), JobIn(0), JobIn(2)})) {
    EXPECT_THAT(result.status, IsOk());
    EXPECT_EQ(result.backend, "cuda");
  }
  EXPECT_THAT(Run({JobIn(1)})[0].status, IsOk());
  for (size_t i = 0; i < gpus_.size(); ++i) EXPECT_TRUE(IsWanted(i)) << i;
  EXPECT_THAT(Jobs(), ElementsAre(1, 1, 1, 1));
}

TEST_F(DevicesBackendTest, RandomJobsOnAnyDeviceHaveTheReferencesBytes) {
  const auto reference = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  std::vector<std::shared_ptr<testing::FakeExport>> exports;
  std::vector<std::shared_ptr<const DeviceAllocation>> open;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    exports.push_back(gpus_.device(i).Export(int64_t{4} << 20));
    open.push_back(*gpus_.cuda(i).Open(exports[i]->handle()));
  }
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomJob random(seed, /*misaligned=*/seed % 2 == 0);
    ASSERT_THAT(reference->Run({random.job()}), IsOk());
    const std::vector<Tensor> want = random.Now();
    random.Reset();
    DeviceTwin twin(exports[seed / 2 % 4]);
    Chooser choose(seed);
    for (const auto& tensor : random.memory()) {
      if (choose.Coin()) twin.Move(tensor.get());
    }
    const JobResult result = Run({twin.Moved(random.job())})[0];
    ASSERT_THAT(result.status, IsOk());
    twin.Fetch();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(SameBits(want[i], *random.memory()[i])) << "seed " << seed << " memory " << i;
    }
  }
  for (const int64_t jobs : Jobs()) EXPECT_GT(jobs, 15);
}

TEST_F(DevicesBackendTest, HostTensorsGoToTheShortestQueue) {
  Tensor first = x_, second = x_, third = x_;
  Gate reached, leave;
  Hold(0, &reached, &leave);
  std::thread busy([&] { EXPECT_THAT(Run({HostJob(&first)})[0].status, IsOk()); });
  reached.Wait();
  EXPECT_THAT(Run({HostJob(&second)})[0].status, IsOk());
  EXPECT_THAT(Jobs(), ElementsAre(0, 1, 0, 0)) << "device 0 has more to do";
  leave.Open();
  busy.join();
  EXPECT_THAT(Run({HostJob(&third)})[0].status, IsOk());
  EXPECT_THAT(Jobs(), ElementsAre(2, 1, 0, 0)) << "all idle: the lowest number";
  for (const Tensor* const y : {&first, &second, &third}) EXPECT_TRUE(SameBits(want_, *y));
}

TEST_F(DevicesBackendTest, WorkOnADevicesMemoryCountsInItsQueue) {
  Tensor y = x_;
  Gate reached, leave;
  Hold(0, &reached, &leave);
  std::thread busy([&] { EXPECT_THAT(Run({JobIn(0)})[0].status, IsOk()); });
  reached.Wait();
  EXPECT_THAT(Run({HostJob(&y), JobIn(1)})[0].status, IsOk());
  leave.Open();
  busy.join();
  EXPECT_THAT(Jobs(), ElementsAre(1, 2, 0, 0));
}

// If the parts ran one after another, the first would wait for ever.
TEST_F(DevicesBackendTest, PartsOfACallRunAtOnce) {
  Gate zero, three;
  Hold(0, &zero, &three);
  Hold(3, &three, &zero);
  for (const JobResult& result : Run({JobIn(0), JobIn(3)})) EXPECT_THAT(result.status, IsOk());
  EXPECT_TRUE(IsWanted(0));
  EXPECT_TRUE(IsWanted(3));
}

class PortionsTest : public DevicesBackendTest {
 protected:
  PortionsTest() : DevicesBackendTest(2 * kJobBytes) {}
};

TEST_F(PortionsTest, ALargeCallGoesToAllDevices) {
  std::vector<Tensor> y(10, x_);
  std::vector<Job> jobs;
  for (Tensor& each : y) jobs.push_back(HostJob(&each));
  for (const JobResult& result : Run(jobs)) EXPECT_THAT(result.status, IsOk());
  for (const Tensor& each : y) EXPECT_TRUE(SameBits(want_, each));
  EXPECT_THAT(Jobs(), ElementsAre(4, 2, 2, 2));
}

TEST_F(PortionsTest, ACallThatStaysOnTheCpuIsNotCut) {
  cuda::CudaBackendOptions options = FakeGpuOptions();
  options.host_tensors = false;
  DeviceBackends gpus(4, options, 2 * kJobBytes);
  std::vector<Tensor> y(10, x_);
  std::vector<Job> jobs;
  for (Tensor& each : y) jobs.push_back(HostJob(&each));
  EXPECT_THAT(gpus.backend().Run(jobs), IsOk());
  for (const Tensor& each : y) EXPECT_TRUE(SameBits(want_, each));
  EXPECT_EQ(gpus.cuda(0).device_counts().jobs_sooner_on_cpu, 10);
  EXPECT_EQ(gpus.backend().batch_policy().bytes, 0);
}

TEST_F(DevicesBackendTest, ALostDeviceLeavesTheOthersAlone) {
  Tensor y = x_;
  gpus_.Lose(0);
  const auto results = Run({HostJob(&y), JobIn(0), JobIn(1), JobIn(2)});
  EXPECT_THAT(results[0].status, IsOk());
  EXPECT_EQ(results[0].backend, "cuda") << "another device computes";
  EXPECT_THAT(results[1].status, StatusIs(absl::StatusCode::kAborted, HasSubstr("lost")));
  EXPECT_THAT(results[2].status, IsOk());
  EXPECT_THAT(results[3].status, IsOk());
  EXPECT_TRUE(SameBits(want_, y));
  EXPECT_TRUE(IsWanted(1));
  EXPECT_TRUE(IsWanted(2));
  EXPECT_THAT(Jobs(), ElementsAre(0, 2, 1, 0));
  EXPECT_EQ(gpus_.backend().batch_policy().runs, 3 * 2);
  EXPECT_EQ(gpus_.backend().batch_policy().early_runs, 3);

  memory_[0].reset();
  gpus_.cuda(0).Retry();
  EXPECT_THAT(Run({HostJob(&y)})[0].status, IsOk());
  EXPECT_EQ(Jobs()[0], 1) << "it works again";
}

TEST_F(DevicesBackendTest, IfAllAreLostTheCpuComputes) {
  Tensor y = x_;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    gpus_.Lose(i);
    gpus_.device(i).FailWith(
        [](const std::string&, int64_t) { return absl::UnavailableError("still lost"); });
  }
  EXPECT_EQ(gpus_.backend().batch_policy().bytes, 0);
  const JobResult result = Run({HostJob(&y)})[0];
  EXPECT_THAT(result.status, IsOk());
  EXPECT_EQ(result.backend, "cpu");
  EXPECT_TRUE(SameBits(want_, y));
}

TEST_F(DevicesBackendTest, AJobOfTwoDevicesIsRefusedAndNothingIsChanged) {
  const auto results = Run({JobOn(memory_[2]->data(), memory_[1]->data()), JobIn(3)});
  EXPECT_THAT(results[0].status,
              StatusIs(kInvalid, AllOf(HasSubstr("device 2 (Fake GPU, GPU-20010203-"),
                                       HasSubstr("device 1 (Fake GPU, GPU-10010203-"),
                                       HasSubstr("must be on one device"))));
  EXPECT_TRUE(results[0].intact);
  EXPECT_THAT(results[1].status, IsOk());
  EXPECT_EQ(std::memcmp(exports_[1]->data(), x_.data(), static_cast<size_t>(kBytes)), 0);
  EXPECT_THAT(Run({JobOn(memory_[0]->data(), memory_[3]->data())})[0].status,
              StatusIs(kInvalid, HasSubstr("device 0")));
  EXPECT_THAT(gpus_.backend().Run({JobOn(memory_[0]->data(), memory_[3]->data())}),
              StatusIs(kInvalid, HasSubstr("device 3")));
}

TEST_F(DevicesBackendTest, ListsItsDevicesAndWantsBatchesForEach) {
  Backend& backend = gpus_.backend();
  EXPECT_EQ(backend.name(), "cuda");
  ASSERT_EQ(backend.devices().size(), 4u);
  EXPECT_EQ(backend.devices()[2].device_number(), 2);
  const BatchPolicy policy = backend.batch_policy();
  EXPECT_EQ(policy.bytes, FakeGpuOptions().chunk_bytes);
  EXPECT_EQ(policy.runs, 4 * 2);
  EXPECT_EQ(policy.early_runs, 4);
}

TEST(ChooseDevicesTest, TakesAllOrThoseThatAreNamed) {
  const std::vector<std::string> names = {"A", "B", "C"};
  EXPECT_THAT(*ChooseDevices({}, names), ElementsAre(0, 1, 2));
  EXPECT_THAT(*ChooseDevices({2, 0}, names), ElementsAre(0, 2));
  EXPECT_THAT(ChooseDevices({0, 2, 0}, names),
              StatusIs(kInvalid, "devices: 0 twice, each must be given once"));
  EXPECT_THAT(
      ChooseDevices({0, 3}, names),
      StatusIs(kInvalid, "devices: 3 is none of this host's, which are 0 (A), 1 (B), 2 (C)"));
  EXPECT_THAT(ChooseDevices({-1}, names), StatusIs(kInvalid, HasSubstr("devices: -1 is none")));
}

class OpenDevicesTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Backend>> Open(const std::vector<int>& wanted) {
    const std::vector<std::string> names = {"A", "B", "C"};
    const auto open = [this](int number) -> absl::StatusOr<std::unique_ptr<Backend>> {
      if (broken_.contains(number)) return absl::FailedPreconditionError(StrCat("no ", number));
      auto device = std::make_shared<testing::FakeDevice>();
      device->FailWith([error = faults_[number]](const std::string& call, int64_t) {
        return call == "Run" ? error : absl::OkStatus();
      });
      auto driver = std::make_unique<testing::FakeDriver>(device, number);
      return std::make_unique<cuda::CudaBackend>(
          std::move(driver), cpu::MakeCpuBackend({cpu::Target::kScalar, 1}), FakeGpuOptions());
    };
    return OpenDevices(wanted, names, open,
                       [this](const std::string& why) { left_out_.push_back(why); });
  }
  static std::vector<int> NumbersOf(Backend& backend) {
    std::vector<int> numbers;
    for (const DevicePort* const device : backend.devices()) {
      numbers.push_back(device->device_number());
    }
    return numbers;
  }

  std::set<int> broken_;
  std::map<int, absl::Status> faults_;  // of kernels
  std::vector<std::string> left_out_;
};

TEST_F(OpenDevicesTest, OpensThoseThatAreNamedOrAll) {
  EXPECT_THAT(NumbersOf(**Open({})), ElementsAre(0, 1, 2));
  EXPECT_THAT(NumbersOf(**Open({2, 1})), ElementsAre(1, 2));
  EXPECT_THAT(NumbersOf(**Open({1})), ElementsAre(1));
  EXPECT_THAT(Open({5}), StatusIs(kInvalid, HasSubstr("devices: 5")));
  EXPECT_TRUE(left_out_.empty());
}

TEST_F(OpenDevicesTest, BrokenOnesAreLeftOutUnlessTheyAreNamed) {
  broken_ = {1};
  EXPECT_THAT(NumbersOf(**Open({})), ElementsAre(0, 2));
  EXPECT_THAT(left_out_, ElementsAre("device 1: no 1"));
  EXPECT_THAT(Open({0, 1}), StatusIs(absl::StatusCode::kFailedPrecondition, "no 1"));
  broken_ = {0, 1, 2};
  EXPECT_THAT(Open({}), StatusIs(absl::StatusCode::kFailedPrecondition, "no 0"));
  EXPECT_EQ(left_out_.size(), 1u);
}

// The CPU computes in their place, so the self-test alone does not show it.
TEST_F(OpenDevicesTest, OnesWhoseKernelsFailAreLeftOut) {
  faults_ = {{0, absl::UnavailableError("lost")}, {2, absl::InternalError("refused")}};
  EXPECT_THAT(NumbersOf(**Open({})), ElementsAre(1));
  EXPECT_THAT(left_out_, ElementsAre(AllOf(HasSubstr("device 0: self-test: "), HasSubstr(": lost")),
                                     HasSubstr("device 2: self-test: the device fails kernels")));
  EXPECT_THAT(Open({0, 1}), StatusIs(absl::StatusCode::kInternal, HasSubstr("lost")));
}

// Moves of keys whose pools are on one device each, and one whose pools are on two.
TEST(DevicesBackendMovesTest, KeysAreMovedOnTheirDevice) {
  DeviceBackends gpus(4, FakeGpuOptions());
  std::vector<std::shared_ptr<testing::FakeExport>> exports;
  std::vector<std::shared_ptr<const DeviceAllocation>> open;
  for (size_t i = 0; i < gpus.size(); ++i) {
    exports.push_back(gpus.device(i).Export(int64_t{4} << 20));
    open.push_back(*gpus.cuda(i).Open(exports[i]->handle()));
  }
  const auto cpu = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  std::vector<std::unique_ptr<testing::RandomMove>> moves;
  std::vector<DeviceTwin> twins(exports.begin(), exports.end());
  std::vector<Job> jobs;
  for (uint64_t seed = 0; moves.size() < 8; ++seed) {
    auto random = std::make_unique<testing::RandomMove>(seed);
    if (!cuda::Supports(random->job())) continue;
    DeviceTwin& twin = twins[moves.size() % 4];
    moves.push_back(std::move(random));
    for (const auto& pool : moves.back()->memory()) twin.Move(pool.get());
    jobs.push_back(twin.Moved(moves.back()->job()));
  }
  auto mixed = std::get<MoveJob>(jobs[0]);
  mixed.pools.push_back(std::get<MoveJob>(jobs[1]).pools[0]);
  jobs.push_back(mixed);
  std::vector<JobResult> results(jobs.size());
  gpus.backend().RunEach(jobs, absl::MakeSpan(results));
  EXPECT_THAT(results.back().status, StatusIs(kInvalid, HasSubstr("must be on one device")));
  for (const DeviceTwin& twin : twins) twin.Fetch();
  for (size_t i = 0; i < moves.size(); ++i) {
    EXPECT_THAT(results[i].status, IsOk());
    EXPECT_EQ(results[i].backend, "cuda");
    EXPECT_EQ(gpus.cuda(i % 4).state().jobs_in_device_memory, 2);
    const std::vector<Tensor> got = moves[i]->Now();
    moves[i]->Reset();
    ASSERT_THAT(cpu->Run({moves[i]->job()}), IsOk());
    for (size_t k = 0; k < got.size(); ++k) {
      EXPECT_EQ(std::memcmp(got[k].data(), moves[i]->memory()[k]->data(),
                            static_cast<size_t>(got[k].size_bytes())),
                0)
          << i << " pool " << k;
    }
  }
}

}  // namespace
}  // namespace phasor
