// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on keys in device memory: the reference's bytes in chunks of any size, and what
// callers learn when a device fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/base/text.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/items.h"
#include "tests/kernels/cuda/device_twin.h"
#include "tests/kernels/cuda/moves_on_driver.h"
#include "tests/support/fake_driver.h"
#include "tests/support/random_moves.h"

namespace phasor::cuda {
namespace {

using testing::DeviceTwin;
using testing::FakeDevice;
using testing::FakeDriver;
using ::testing::HasSubstr;
using testing::RandomMove;
using testing::SameReports;
using testing::Tensor;

std::vector<Tensor> MovedByCpu(RandomMove& random) {
  random.Reset();
  EXPECT_TRUE(cpu::MakeCpuBackend({cpu::Target::kScalar, 1})->Run({random.job()}).ok());
  std::vector<Tensor> want = random.Now();
  random.Reset();
  return want;
}

bool SameMemory(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(a[i].size_bytes())) != 0) {
      return false;
    }
  }
  return true;
}

// A backend on a fake device with memory of another process, where all pools of a move are.
struct KeysFixture {
  explicit KeysFixture(int64_t chunk_bytes = int64_t{8} << 20)
      : backend(std::make_unique<FakeDriver>(device),
                cpu::MakeCpuBackend({cpu::Target::kScalar, 1}),
                {.chunk_bytes = chunk_bytes,
                 .slots = 2,
                 .life = {.retry = true, .first_wait = std::chrono::milliseconds(0)}}) {
    allocation = *backend.Open(exported->handle());
  }
  JobResult Run(RandomMove& random) {
    DeviceTwin twin(exported);
    for (const auto& pool : random.memory()) twin.Move(pool.get());
    const Job job = twin.Moved(random.job());
    JobResult result;
    backend.RunEach({&job, 1}, {&result, 1});
    twin.Fetch();
    return result;
  }

  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  std::shared_ptr<testing::FakeExport> exported = device->Export(int64_t{8} << 20);
  CudaBackend backend;
  std::shared_ptr<const DeviceAllocation> allocation;
};

// Tokens of a cache with one layer of 32 lanes in FLOAT16, in place.
struct PlainMove {
  explicit PlainMove(int64_t tokens, int64_t distance) {
    MoveTokens moved;
    for (int64_t t = 0; t < tokens; ++t) {
      moved.from_slots.push_back(t * 7 % tokens);
      moved.from_positions.push_back(t);
      moved.to_positions.push_back(t + distance);
    }
    moved.to_slots = moved.from_slots;
    groups = {moved};
    forms = {{.code = KeyCode::kFloat16,
              .pages = tokens,
              .page_size = 1,
              .heads = 1,
              .head_dim = 32,
              .page_bytes = 64,
              .slot_bytes = 64,
              .head_bytes = 64,
              .group_lanes = 32,
              .lane_bytes = 2,
              .bytes_from = 64}};
    planes = {{.plan = plan.get(), .from_plan = plan.get()}};
  }
  Job In(std::byte* pool) const {
    MoveJob move{.mode = MoveMode::kMove, .forms = &forms, .groups = &groups, .planes = &planes};
    move.pools = {pool};
    return move;
  }

  std::shared_ptr<const Plan> plan = testing::MakeHandPlan({.pairs = 16});
  std::vector<KeyForm> forms;
  std::vector<MoveTokens> groups;
  std::vector<MovePlane> planes;
};

TEST(DeviceKeysTest, RandomMovesHaveTheReferencesBytes) {
  KeysFixture small(24 << 10), large;
  int too_large = 0;  // for small chunks
  for (uint64_t seed = 0; seed < 250; ++seed) {
    RandomMove random(seed);
    if (!Supports(random.job())) continue;
    const std::vector<Tensor> want = MovedByCpu(random);
    for (KeysFixture* const f : {&small, &large}) {
      random.Reset();
      const JobResult result = f->Run(random);
      if (f == &small && absl::IsResourceExhausted(result.status)) {
        ++too_large;  // the tables of its specs
        continue;
      }
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(result.backend, "cuda");
      ASSERT_TRUE(SameMemory(want, random.Now())) << seed << ": " << random.Describe();
    }
  }
  EXPECT_LT(too_large, 100);
  EXPECT_GT(large.backend.state().jobs_in_device_memory, 200);
  EXPECT_EQ(large.backend.state().jobs_failed, 0);
}

// Each call of the driver fails once, in each way.
TEST(DeviceKeysTest, AFailedMoveIsDoneOrSaysWhatBecameOfTheKeys) {
  int aborted = 0, again = 0, intact = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    RandomMove random(seed);
    if (!Supports(random.job())) continue;
    const std::vector<Tensor> want = MovedByCpu(random), before = random.Now();
    for (const std::string call :
         {"CreateStream", "Allocate", "AllocatePinned", "CopyToDevice", "Run", "Synchronize"}) {
      for (int64_t number = 0; number < 3; ++number) {
        for (const auto code : {absl::StatusCode::kResourceExhausted, absl::StatusCode::kInternal,
                                absl::StatusCode::kUnavailable}) {
          KeysFixture f(128 << 10);
          f.device->FailWith([&](const std::string& name, int64_t n) {
            return name == call && n == number ? absl::Status(code, "failed") : absl::OkStatus();
          });
          random.Reset();
          const JobResult result = f.Run(random);
          const std::string what =
              StrCat(seed, " ", call, " ", number, ": ", std::string(result.status.message()));
          if (result.status.ok()) {
            ASSERT_TRUE(SameMemory(want, random.Now())) << what;
            continue;
          }
          if (result.intact) {
            ASSERT_TRUE(SameMemory(before, random.Now())) << what;
            ++intact;
          }
          const bool lost = code == absl::StatusCode::kUnavailable;
          EXPECT_EQ(lost, result.status.message().find("was lost") != std::string::npos) << what;
          if (lost || (random.in_place() && !result.intact)) {
            EXPECT_TRUE(absl::IsAborted(result.status)) << what;
            ++aborted;
          } else {
            EXPECT_TRUE(absl::IsUnavailable(result.status)) << what;
            EXPECT_THAT(std::string(result.status.message()), HasSubstr("; try again"));
            ++again;
          }
          EXPECT_EQ(f.backend.state().jobs_failed, 1);
        }
      }
    }
  }
  EXPECT_GT(aborted, 50);
  EXPECT_GT(again, 50);
  EXPECT_GT(intact, 50);
}

TEST(DeviceKeysTest, ADeviceThatIsLostInTheMiddleOfAMoveAborts) {
  uint64_t seed = 0;
  while (!RandomMove(seed).in_place() || !Supports(RandomMove(seed).job())) ++seed;
  RandomMove random(seed);
  KeysFixture f;
  f.device->FailWith([](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::UnavailableError("illegal access") : absl::OkStatus();
  });
  const JobResult result = f.Run(random);
  EXPECT_TRUE(absl::IsAborted(result.status)) << result.status;
  EXPECT_FALSE(result.intact);
  EXPECT_FALSE(f.allocation->usable());
  EXPECT_TRUE(absl::IsAborted(f.Run(random).status)) << "its memory is gone";
}

TEST(DeviceKeysTest, WhatNoKernelDoesIsRefusedAndChangesNothing) {
  KeysFixture f;
  int refused = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomMove random(seed);
    if (Supports(random.job())) continue;
    const std::vector<Tensor> before = random.Now();
    const JobResult result = f.Run(random);
    EXPECT_EQ(result.status.code(), absl::StatusCode::kUnimplemented) << result.status;
    EXPECT_TRUE(result.intact);
    EXPECT_TRUE(SameMemory(before, random.Now()));
    ++refused;
  }
  EXPECT_GT(refused, 2);
  EXPECT_EQ(f.backend.state().launches, 0);
}

// Copies the keys as a move would, changes a few bytes, and compares.
TEST(DeviceKeysTest, RandomComparisonsFindWhatTheReferenceFinds) {
  KeysFixture small(24 << 10), large;
  const auto cpu = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  int compared = 0, good = 0, bad = 0, nan = 0, too_large = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    RandomMove random(seed, /*compares=*/true);
    if (!Supports(random.job())) continue;
    ASSERT_TRUE(cpu->Run({random.AsCopy()}).ok());
    random.Corrupt();
    ASSERT_TRUE(cpu->Run({random.job()}).ok());
    const std::vector<KeyReport> want = random.reports();
    const std::vector<Tensor> before = random.Now();
    for (const KeyReport& report : want) {
      (report.bad_rows > 0 ? bad : good) += 1;
      nan += report.max_abs != report.max_abs;
    }
    for (KeysFixture* const f : {&small, &large}) {
      const JobResult result = f->Run(random);
      if (f == &small && absl::IsResourceExhausted(result.status)) {
        ++too_large;  // the tables of its specs
        continue;
      }
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(result.backend, "cuda");
      ASSERT_TRUE(SameReports(want, random.reports())) << seed << ": " << random.Describe();
      ASSERT_TRUE(SameMemory(before, random.Now())) << seed;
      ++compared;
    }
  }
  EXPECT_GT(compared, 300);
  EXPECT_GT(good, 100);
  EXPECT_GT(bad, 100);
  EXPECT_GT(nan, 5);
  EXPECT_LT(too_large, 100);
}

TEST(DeviceKeysTest, AComparisonOfNoTokensReportsNoDifference) {
  KeysFixture f;
  const std::vector<KeyForm> forms = PlainMove(1, 0).forms;
  const std::vector<MoveTokens> groups(1);
  const std::vector<MovePlane> planes(1);
  const double tolerance = 0;
  std::vector<std::byte> host(64);
  for (std::byte* const pool : {host.data(), f.allocation->data()}) {
    KeyReport report{.max_abs = 5, .bad_rows = 3, .first_bad_head = 1};
    MoveJob job{.mode = MoveMode::kCompare, .forms = &forms, .groups = &groups, .planes = &planes};
    job.pools = {pool};
    job.tolerances = &tolerance;
    job.reports = reinterpret_cast<std::byte*>(&report);
    job.report_count = 1;
    ASSERT_TRUE(f.backend.Run({job}).ok());
    EXPECT_EQ(report.max_abs, 0);
    EXPECT_EQ(report.bad_rows, 0);
    EXPECT_EQ(report.first_bad_head, -1);
  }
}

// What cuda_driver_test does on a GPU.
TEST(DeviceKeysTest, RandomMovesWithoutABackendHaveTheReferencesBytes) {
  FakeDriver driver(std::make_shared<FakeDevice>());
  int64_t launches = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomMove random(seed);
    if (!Supports(random.job())) continue;
    const std::vector<Tensor> want = MovedByCpu(random);
    const absl::Status ran = testing::RunOnDriver(driver, random, &launches);
    ASSERT_TRUE(ran.ok()) << ran;
    ASSERT_TRUE(SameMemory(want, random.Now())) << seed << ": " << random.Describe();
    RandomMove compares(seed, /*compares=*/true);
    if (!Supports(compares.job())) continue;
    compares.Corrupt();
    ASSERT_TRUE(cpu::MakeCpuBackend({cpu::Target::kScalar, 1})->Run({compares.job()}).ok());
    const std::vector<KeyReport> reports = compares.reports();
    const absl::Status compared = testing::RunOnDriver(driver, compares, &launches);
    ASSERT_TRUE(compared.ok()) << compared;
    ASSERT_TRUE(SameReports(reports, compares.reports())) << seed;
  }
  EXPECT_GE(launches, 80);
}

TEST(DeviceKeysTest, AMoveOfManyTokensIsCutIntoChunks) {
  constexpr int64_t kTokens = 2003;  // a prime
  const PlainMove move(kTokens, 5);
  Tensor keys(Dtype::kFloat16, kTokens * 32);
  keys.Fill(3);
  KeysFixture f(16 << 10);
  std::memcpy(f.exported->data(), keys.data(), static_cast<size_t>(keys.size_bytes()));
  const Job there = move.In(f.allocation->data()), here = move.In(keys.data());
  ASSERT_TRUE(cpu::MakeCpuBackend({cpu::Target::kScalar, 1})->Run({here}).ok());
  JobResult result;
  f.backend.RunEach({&there, 1}, {&result, 1});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_GT(f.backend.state().chunks, 3);
  EXPECT_EQ(std::memcmp(f.exported->data(), keys.data(), static_cast<size_t>(keys.size_bytes())),
            0);
}

TEST(DeviceKeysTest, AMoveWhoseLaterGroupIsTooLargeIsHalfDone) {
  PlainMove move(3, 5);
  const auto large = testing::MakeHandPlan({.pairs = 256});
  move.groups.push_back(move.groups[0]);
  move.forms.push_back(move.forms[0]);
  move.forms[1].head_dim = move.forms[1].group_lanes = 512;
  move.forms[1].bytes_from = 1024;
  for (int64_t* const bytes :
       {&move.forms[1].page_bytes, &move.forms[1].slot_bytes, &move.forms[1].head_bytes}) {
    *bytes = 1024;
  }
  move.planes.push_back({.plan = large.get(),
                         .from_plan = large.get(),
                         .form = 1,
                         .to_form = 1,
                         .tokens = 1,
                         .offset = 4096,
                         .to_offset = 4096});
  for (const bool first : {false, true}) {
    KeysFixture f(4 << 10);
    if (first) std::swap(move.planes[0].tokens, move.planes[1].tokens);
    const Job there = move.In(f.allocation->data());
    JobResult result;
    f.backend.RunEach({&there, 1}, {&result, 1});
    EXPECT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted) << result.status;
    EXPECT_EQ(result.intact, first);
  }
}

// Tokens are moved in all layers and noted, or not touched.
TEST(DeviceKeysTest, AMoveThatIsStoppedEndsBetweenItsPieces) {
  constexpr int64_t kTokens = 2003, kBytes = kTokens * 64, kPositionsAt = int64_t{1} << 20;
  constexpr int kAll = 1 << 20;
  PlainMove move(kTokens, 5);
  move.groups[0].slot_positions = {1, 0};
  Tensor keys(Dtype::kFloat16, kTokens * 32);
  keys.Fill(3);
  Tensor moved = keys;
  std::vector<uint32_t> positions(kTokens);
  auto here = std::get<MoveJob>(move.In(moved.data()));
  here.pools.push_back(reinterpret_cast<std::byte*>(positions.data()));
  ASSERT_TRUE(cpu::MakeCpuBackend({cpu::Target::kScalar, 1})->Run({here}).ok());
  for (const int allowed : {0, 1, 2, kAll}) {
    KeysFixture f(4 << 10);
    std::memcpy(f.exported->data(), keys.data(), kBytes);
    auto there = std::get<MoveJob>(move.In(f.allocation->data()));
    there.pools.push_back(f.allocation->data() + kPositionsAt);
    int asked = 0;
    Stop stop(
        [&] { return asked++ < allowed ? absl::OkStatus() : absl::CancelledError("enough"); });
    there.stop = &stop;
    const Job job = there;
    JobResult result;
    f.backend.RunEach({&job, 1}, {&result, 1});
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(stop.begun(), allowed > 0);
    EXPECT_EQ(absl::IsCancelled(stop.why()), allowed < kAll);
    int64_t done = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t slot = move.groups[0].to_slots[static_cast<size_t>(t)];
      uint32_t position = 0;
      std::memcpy(&position, f.exported->data() + kPositionsAt + 4 * slot, 4);
      const bool is_done = position != 0;
      const Tensor& want = is_done ? moved : keys;
      ASSERT_EQ(std::memcmp(f.exported->data() + slot * 64, want.data() + slot * 64, 64), 0) << t;
      ASSERT_TRUE(!is_done || position == positions[static_cast<size_t>(slot)]) << t;
      ASSERT_TRUE(!is_done || done == t) << "pieces are in order";
      done += is_done;
    }
    EXPECT_EQ(done == 0, allowed == 0);
    EXPECT_EQ(done == kTokens, allowed == kAll);
  }
}

TEST(DeviceKeysTest, AMoveThatChangesNoByteIsNotSent) {
  KeysFixture f;
  const PlainMove move(3, 0);
  const Job job = move.In(f.allocation->data());
  JobResult result;
  f.backend.RunEach({&job, 1}, {&result, 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(f.backend.state().launches, 0);
}

}  // namespace
}  // namespace phasor::cuda
