// SPDX-License-Identifier: Apache-2.0
// The CPU backend: neither the instruction set nor the way in which jobs are split changes the
// bytes.
#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "kernels/math/convert.h"
#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/key_cache.h"
#include "tests/support/random_jobs.h"
#include "tests/support/tensors.h"

namespace phasor::cpu {
namespace {

using phasor::testing::SameBits;
using phasor::testing::Tensor;

PlanProvider Compile() {
  static const auto compile = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
  return compile;
}

Tensor EncodeRange(Backend& backend, int64_t start, int64_t count) {
  EncodeRequest request;
  request.spec.preset = "timestep-sin-cos";
  request.spec.dim = 320;
  request.positions = AxisRange{IntegerRange{start, 1, count}};
  auto prepared = PrepareEncode(request, Compile(), "item");
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  Tensor out(Dtype::kFloat32, count * 320);
  const Job jobs[] = {MakeEncodeJob(*prepared, nullptr, out.data())};
  EXPECT_TRUE(backend.Run(jobs).ok());
  return out;
}

TEST(CpuBackendTest, EverySplitOfARangeGivesTheSameRows) {
  constexpr int64_t kRows = 1500;  // several pieces for several threads
  const auto whole_backend = MakeCpuBackend({RunnableTargets().front(), 4});
  const Tensor whole = EncodeRange(*whole_backend, 1000, kRows);
  const auto one = MakeCpuBackend({RunnableTargets().front(), 1});
  for (int64_t cut : {int64_t{1}, int64_t{255}, int64_t{256}, int64_t{777}, kRows - 1}) {
    const Tensor head = EncodeRange(*one, 1000, cut);
    const Tensor tail = EncodeRange(*one, 1000 + cut, kRows - cut);
    EXPECT_EQ(std::memcmp(whole.data(), head.data(), head.size_bytes()), 0) << cut;
    EXPECT_EQ(std::memcmp(whole.data() + head.size_bytes(), tail.data(), tail.size_bytes()), 0)
        << cut;
  }
}

TEST(CpuBackendTest, JobsOfOneBatchDoNotInfluenceEachOther) {
  const auto backend = MakeCpuBackend({RunnableTargets().front(), 2});
  std::vector<Tensor> alone;
  std::vector<Tensor> together;
  std::vector<PreparedEncode> prepared;
  for (int64_t i = 0; i < 20; ++i) {
    EncodeRequest request;
    request.spec.preset = "transformer";
    request.spec.dim = 2 + 2 * i;
    request.positions = AxisRange{IntegerRange{i, 1 + i, 100 * i}};  // 2 MiB in all
    prepared.push_back(*PrepareEncode(request, Compile(), "item"));
    together.emplace_back(Dtype::kFloat32, prepared.back().output_bytes / 4);
    alone.emplace_back(Dtype::kFloat32, prepared.back().output_bytes / 4);
  }
  std::vector<Job> jobs;
  for (size_t i = 0; i < prepared.size(); ++i) {
    const Job single[] = {MakeEncodeJob(prepared[i], nullptr, alone[i].data())};
    ASSERT_TRUE(backend->Run(single).ok());
    jobs.push_back(MakeEncodeJob(prepared[i], nullptr, together[i].data()));
  }
  ASSERT_TRUE(backend->Run(jobs).ok());
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_TRUE(SameBits(alone[i], together[i])) << i;
    EXPECT_TRUE(together[i].GuardsIntact());
  }
}

// A move asks its Stop before each piece, on the thread that computes it.
TEST(CpuBackendTest, SmallJobsOfABatchStayOnTheCallersThread) {
  constexpr int64_t kTokens = 16, kHeadDim = 64, kBytes = kTokens * kHeadDim * 2;
  constexpr size_t kJobs = 64;  // 128 KiB in all
  MoveRequest request;
  request.mode = MoveMode::kMove;
  request.pools = {kBytes};
  request.layouts = {
      {.name = "nhd", .pages = 1, .page_size = kTokens, .heads = 1, .head_dim = kHeadDim}};
  request.specs = {{.spec = {.preset = "rope-half-split"}}};
  request.layers = {{.spec = 0, .place = {0, 0}}};
  request.groups = {{.runs = {{.block_table = {0}, .count = kTokens, .from = 0, .to = 5}}}};
  const auto move = PrepareMove(request, Compile(), "item");
  ASSERT_TRUE(move.ok()) << move.status();

  std::mutex mutex;
  std::set<std::thread::id> threads;
  Stop stop([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(std::this_thread::get_id());
    return absl::OkStatus();
  });
  std::vector<testing::Pool> pools;
  std::vector<Job> jobs;
  for (size_t i = 0; i < kJobs; ++i) pools.emplace_back(static_cast<size_t>(kBytes));
  for (testing::Pool& pool : pools) {
    std::byte* const memory = pool.data();
    MoveJob job = MakeMoveJob(*move, {&memory, 1}, nullptr);
    job.stop = &stop;
    jobs.emplace_back(job);
  }
  const auto backend = MakeCpuBackend({RunnableTargets().front(), 4});
  for (int round = 0; round < 200; ++round) ASSERT_TRUE(backend->Run(jobs).ok());
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
}

TEST(CpuBackendTest, BatchPositionsRotateEachBatchEntryByItsOwn) {
  const auto backend = MakeCpuBackend({RunnableTargets().front(), 2});
  constexpr int64_t kBatch = 3, kTokens = 5;
  const int32_t places[kBatch * kTokens] = {0,   1,   2,  3, 4, 100, 101,   102,
                                            103, 104, -7, 9, 9, 9,   131071};
  const auto rotate = [&](const std::byte* data, std::vector<int64_t> positions_shape,
                          int64_t batch, std::byte* x) {
    RopeRequest request;
    request.spec.preset = "rope-half-split";
    request.positions = PositionTensor{Dtype::kInt32, std::move(positions_shape)};
    request.tensors = {{Dtype::kFloat32, {batch, kTokens, 2, 8}, {}}};
    auto prepared = PrepareRope(request, Compile(), "item");
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    prepared->positions.data = data;
    std::byte* const y[] = {x};
    const std::byte* const in[] = {x};
    const Job jobs[] = {MakeRotaryJob(*prepared, in, y)};
    ASSERT_TRUE(backend->Run(jobs).ok());
  };
  Tensor all(Dtype::kFloat32, kBatch * kTokens * 16);
  all.Fill(5);
  Tensor each = all;
  rotate(reinterpret_cast<const std::byte*>(places), {kBatch, kTokens}, kBatch, all.data());
  for (int64_t b = 0; b < kBatch; ++b) {
    rotate(reinterpret_cast<const std::byte*>(places + b * kTokens), {kTokens}, 1,
           each.data() + b * kTokens * 16 * 4);
  }
  EXPECT_TRUE(SameBits(all, each));
}

TEST(CpuBackendTest, RandomJobsHaveTheReferencesBytes) {
  const auto backends = phasor::testing::AllBackends();
  const auto run = [](Backend& backend, phasor::testing::RandomJob& random) {
    random.Reset();
    EXPECT_TRUE(backend.Run({random.job()}).ok());
    return random.Now();
  };
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    phasor::testing::RandomJob random(seed);
    const std::vector<Tensor> want = run(*backends[0].backend, random);
    for (size_t b = 1; b < backends.size(); ++b) {
      const std::vector<Tensor> got = run(*backends[b].backend, random);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(got[i].GuardsIntact()) << backends[b].name << " seed " << seed;
        ASSERT_TRUE(SameBits(want[i], got[i])) << backends[b].name << " seed " << seed;
      }
    }
  }
}

// With 1.5 as the amplitude, a half of all BFLOAT16 numbers lie midway between two of them.
TEST(CpuBackendTest, HalvesOfBFloat16AreRoundedToEven) {
  constexpr int64_t kTokens = 1024, kHeadDim = 64;
  for (const char* const preset : {"rope-half-split", "rope-interleaved"}) {
    for (const Target target : RunnableTargets()) {
      SCOPED_TRACE(preset);
      RopeRequest request;
      request.spec.preset = preset;
      request.spec.attention_factor = 1.5;
      request.positions = AxisRange{IntegerRange{0, 0, kTokens}};
      request.tensors = {{Dtype::kBFloat16, {kTokens, 1, kHeadDim}, {}}};
      const auto prepared = PrepareRope(request, Compile(), "item");
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      Tensor x(Dtype::kBFloat16, kTokens * kHeadDim);  // every number whose product is finite
      for (int64_t i = 0; i < x.count(); ++i) {
        const auto bits = static_cast<uint16_t>((i & 0x7FFF) < 0x7F00 ? i : 0);
        std::memcpy(x.data() + 2 * i, &bits, sizeof bits);
      }
      Tensor y = x;
      const std::byte* const in[] = {x.data()};
      std::byte* const out[] = {y.data()};
      const Job jobs[] = {MakeRotaryJob(*prepared, in, out)};
      ASSERT_TRUE(MakeCpuBackend({target, 1})->Run(jobs).ok());
      for (int64_t i = 0; i < x.count(); ++i) {
        uint16_t from, to;
        std::memcpy(&from, x.data() + 2 * i, sizeof from);
        std::memcpy(&to, y.data() + 2 * i, sizeof to);
        const uint16_t expected = BFloat16FromFloat(1.5f * FloatFromBFloat16(from));
        if ((expected & 0x7FFF) == 0 && (to & 0x7FFF) == 0) continue;  // zeros of either sign
        ASSERT_EQ(to, expected) << from;
      }
    }
  }
}

// A tensor in pieces of odd sizes, which the backend gathers.
TEST(CpuBackendTest, PiecesGiveTheBytesOfTheWhole) {
  constexpr int64_t kBatch = 2, kTokens = 301, kHeads = 5, kHeadDim = 64;
  const auto backend = MakeCpuBackend({RunnableTargets().front(), 3});
  for (RopeLayout layout : {RopeLayout::kTokensHeads, RopeLayout::kHeadsTokens}) {
    RopeRequest request;
    request.spec.preset = "rope-interleaved";
    request.layout = layout;
    request.positions = AxisRange{IntegerRange{77, 1, kTokens}};
    const bool heads_first = layout == RopeLayout::kHeadsTokens;
    request.tensors = {
        {Dtype::kBFloat16,
         {kBatch, heads_first ? kHeads : kTokens, heads_first ? kTokens : kHeads, kHeadDim},
         {}}};
    const auto prepared = PrepareRope(request, Compile(), "item");
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    Tensor x(Dtype::kBFloat16, kBatch * kTokens * kHeads * kHeadDim);
    x.Fill(9);
    Tensor whole(Dtype::kBFloat16, x.count()), gathered(Dtype::kBFloat16, x.count());
    const std::byte* const in[] = {x.data()};
    std::byte* const out[] = {whole.data()};
    const Job whole_job[] = {MakeRotaryJob(*prepared, in, out)};
    ASSERT_TRUE(backend->Run(whole_job).ok());

    std::vector<absl::Span<const std::byte>> pieces;
    for (int64_t at = 0, size = 1; at < x.size_bytes(); at += size, size = size * 3 % 65537) {
      size = std::min(size, x.size_bytes() - at);
      pieces.emplace_back(x.data() + at, size);
      pieces.emplace_back();  // empty pieces change nothing
    }
    RotaryJob job = MakeRotaryJob(*prepared, in, {{gathered.data()}});
    job.tensors[0].x = nullptr;
    job.tensors[0].pieces = pieces;
    const Job gathered_job[] = {job};
    ASSERT_TRUE(backend->Run(gathered_job).ok());
    EXPECT_TRUE(SameBits(whole, gathered));
    EXPECT_TRUE(gathered.GuardsIntact());
  }
}

}  // namespace
}  // namespace phasor::cpu
