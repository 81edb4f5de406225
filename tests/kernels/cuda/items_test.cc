// SPDX-License-Identifier: Apache-2.0
// The GPU's kernels, run over the whole grid on the host, return the reference's bytes for every
// op, type, layout and slicing. Supports() names in advance the jobs that they cannot run.
#include "kernels/cuda/items.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/base/text.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/request/request.h"
#include "tests/support/host_grid.h"
#include "tests/support/random_jobs.h"

namespace phasor::cuda {
namespace {

using testing::MakeHandPlan;
using testing::PairsOf;
using testing::RandomJob;
using testing::SameBits;
using testing::Tensor;

void RunReference(const Job& job) {
  static const auto* const backend =
      new std::unique_ptr<Backend>(cpu::MakeCpuBackend({cpu::Target::kScalar, 1}));
  EXPECT_TRUE((*backend)->Run({job}).ok());
}

void ExpectSame(const std::vector<Tensor>& want, const std::vector<Tensor>& got,
                const std::string& what) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(got[i].GuardsIntact()) << what;
    ASSERT_TRUE(SameBits(want[i], got[i])) << what << " memory " << i;
  }
}

std::string Describe(const Job& job, uint64_t seed) {
  return StrCat("seed ", seed, " op ", job.index(), " rows ", RowsOf(job));
}

TEST(ItemsTest, RandomJobsHaveTheReferencesBytes) {
  int supported = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomJob random(seed);
    if (!Supports(random.job())) continue;  // far distances of DeBERTa
    ++supported;
    RunReference(random.job());
    const auto want = random.Now();
    for (const auto& [most_rows, processors] :
         {std::pair(int64_t{1} << 40, 1), std::pair(int64_t{7}, 1),
          std::pair(int64_t{1} << 40, 132)}) {
      random.Reset();
      testing::RunOnHostGrid({random.job()}, most_rows, processors);
      ExpectSame(want, random.Now(), Describe(random.job(), seed));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(supported, 500);
}

// Random jobs are compared here and on devices, so they must reach the kernels that are used most.
TEST(ItemsTest, RandomJobsTakeTheKernelsThatAreUsedMost) {
  int rotations = 0, on_axes = 0, encodings = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const RandomJob random(seed);
    if (!Supports(random.job()) || RowsOf(random.job()) == 0) continue;
    Arena arena;
    LaunchList list;
    testing::AddWhereTheyLie(random.job(), int64_t{1} << 40, list, arena);
    for (const Launch& launch : list.Finish(arena, nullptr)) {
      if (launch.kernel.op != Op::kRotary || !launch.kernel.plain) continue;
      ++rotations;
      if (std::get<RotaryJob>(random.job()).plan->spec.axes > 1) ++on_axes;
    }
    if (const auto* job = std::get_if<EncodeJob>(&random.job())) {
      const auto item = MakeEncodeItem(*job, CompileRow(LayoutOf(*job)), {0, RowsOf(*job)},
                                       {job->out, job->out_row_bytes, job->add_to}, {arena, 1});
      if (!item.wide.fraction.empty()) ++encodings;
    }
  }
  EXPECT_GE(rotations, 50);
  EXPECT_GE(on_axes, 20);
  EXPECT_GE(encodings, 5);
}

TEST(ItemsTest, BatchesOfDifferentJobsAreOneLaunchPerKernel) {
  std::vector<std::unique_ptr<RandomJob>> randoms;
  std::vector<Job> jobs;
  std::vector<std::vector<Tensor>> want;
  for (uint64_t seed = 1000; seed < 1300; ++seed) {
    auto random = std::make_unique<RandomJob>(seed);
    if (!Supports(random->job())) continue;
    randoms.push_back(std::move(random));
    jobs.push_back(randoms.back()->job());
    RunReference(jobs.back());
    want.push_back(randoms.back()->Now());
    randoms.back()->Reset();
  }
  const int launches = testing::RunOnHostGrid(jobs);
  EXPECT_LE(launches, 4 * 2 + 6 * 3 + 4 + 6);  // encode, rotary, lookup, bias
  for (size_t i = 0; i < jobs.size(); ++i) {
    ExpectSame(want[i], randoms[i]->Now(), Describe(jobs[i], i));
    if (HasFatalFailure()) return;
  }
}

// q and k of a fused projection: one item and one launch, with shared sines and cosines.
TEST(ItemsTest, ViewsOfOneBufferAreOneLaunch) {
  const auto plan = MakeHandPlan({.pairs = 64});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{131000, 1, 33}}, 1, "positions");
  const int64_t token = (8 + 2 + 2) * 128 * 2;
  Tensor fused(Dtype::kBFloat16, 33 * token / 2);
  fused.Fill(5, true);
  const auto job_on = [&](Tensor& memory) {
    const RotaryStrides strides{0, token, 256};
    RotaryJob job;
    job.plan = plan.get();
    job.positions = &positions;
    job.tokens = 33;
    job.tensors = {
        {Dtype::kBFloat16, 8, memory.data(), strides, memory.data(), strides},
        {Dtype::kBFloat16, 2, memory.data() + 8 * 256, strides, memory.data() + 8 * 256, strides}};
    return Job(job);
  };
  Tensor want = fused;
  RunReference(job_on(want));
  EXPECT_EQ(testing::RunOnHostGrid({job_on(fused)}), 1);
  EXPECT_TRUE(SameBits(want, fused));
}

// Where the angles of a head are more than a block shares, units have their own.
TEST(ItemsTest, LongHeadsHaveTheReferencesBytes) {
  constexpr int64_t kTokens = 5, kHeads = 3;
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{131000, 3, kTokens}}, 1, "positions");
  for (const int64_t pairs : {127, 128, 129, 256, 257, 520, 1032}) {
    for (const Pairing out : {Pairing::kHalfSplit, Pairing::kInterleaved}) {
      const auto plan = MakeHandPlan({.pairs = pairs, .tail = 8, .pairing_out = out});
      for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kBFloat16}) {
        for (const int64_t misalign : {0, 1}) {  // elements; 1: no wide units
          const int64_t head = plan->spec.head_dim * SizeOf(dtype);
          const RotaryStrides strides{0, kHeads * head, head};
          Tensor x(dtype, kTokens * kHeads * plan->spec.head_dim, misalign * SizeOf(dtype));
          x.Fill(3);
          Tensor want = x, got = x;
          RotaryJob job;
          job.plan = plan.get();
          job.positions = &positions;
          job.tokens = kTokens;
          job.tensors = {{dtype, kHeads, x.data(), strides, want.data(), strides}};
          RunReference(job);
          job.tensors[0].y = got.data();
          ASSERT_TRUE(Supports(job));
          testing::RunOnHostGrid({Job(job)});
          ASSERT_TRUE(SameBits(want, got)) << pairs << " pairs of " << Name(dtype);
        }
      }
    }
  }
}

TEST(ItemsTest, AlignedHeadsOfManyPairsGoWide) {
  const auto plan = MakeHandPlan({.pairs = 64});
  RotaryJob job;
  job.plan = plan.get();
  alignas(16) std::byte memory[512];
  RotaryView aligned, misaligned;
  aligned.x = aligned.y = memory;
  aligned.heads = 2;
  aligned.x_strides = aligned.y_strides = {0, 512, 256};
  misaligned = aligned;
  misaligned.x = misaligned.y = memory + 2;
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, 1}}, 1, "positions");
  job.positions = &positions;
  const auto is_wide = [&](const HeadLanes& lanes, const RotaryView& view) {
    return RotaryKernel(job, {0, 1}, Dtype::kBFloat16, lanes, {view}, 1).wide;
  };
  EXPECT_TRUE(is_wide({}, aligned));
  EXPECT_FALSE(is_wide({}, misaligned));
  EXPECT_FALSE(is_wide({1, 0}, aligned));
  const auto odd = MakeHandPlan({.pairs = 63});
  job.plan = odd.get();
  EXPECT_FALSE(is_wide({}, aligned));
}

// A query and a key tensor of heads of 128 lanes, as items get them.
class RotaryItemTest : public ::testing::Test {
 protected:
  RotaryItemTest() {
    job_.plan = plan_.get();
    job_.positions = &positions_;
    for (int i = 0; i < 2; ++i) {
      views_[i].x = views_[i].y = memory_ + i * 1024;
      views_[i].heads = i == 0 ? 4 : 1;
      views_[i].x_strides = views_[i].y_strides = {0, 2048, 256};
    }
  }

  KernelId Kernel(int64_t rows = 3) const {
    return RotaryKernel(job_, {0, rows}, Dtype::kBFloat16, lanes_, views_, rows);
  }
  RotaryItem Item() {
    return MakeRotaryItem(job_, {0, 3}, Kernel(), lanes_, views_, 3, {arena_, 132});
  }

  std::shared_ptr<Plan> plan_ = MakeHandPlan({.pairs = 64});
  const PositionSource positions_ =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, 3}}, 1, "positions");
  alignas(16) std::byte memory_[2048];
  RotaryJob job_;
  HeadLanes lanes_;
  std::vector<RotaryView> views_{2};
  Arena arena_;
};

TEST_F(RotaryItemTest, FindsTheViewOfAHead) {
  const RotaryItem item = Item();
  for (int head = 0; head < 5; ++head) {
    EXPECT_EQ(FindHead(item, head).view.x, views_[head / 4].x) << head;
    EXPECT_EQ(FindHead(item, head).head, head % 4) << head;
  }
}

TEST_F(RotaryItemTest, IsEvenIfEveryUnitRotatesAndIsWrittenAsItIsRead) {
  EXPECT_TRUE(Item().even);
  EXPECT_TRUE(Item().early) << "one wave";
  views_[1].y_strides.head = 512;
  EXPECT_FALSE(Item().even) << "other strides";
  views_[1].y_strides.head = 256;
  views_[1].rotates = false;
  EXPECT_FALSE(Item().even) << "values";
  views_[1].rotates = true;
  plan_->spec.pairing_out = Pairing::kInterleaved;
  EXPECT_FALSE(Item().even) << "another pairing";
  EXPECT_FALSE(Item().early) << "a block must read all lanes first";
}

TEST_F(RotaryItemTest, IsNotEvenIfLanesAreCopiedOrNoneRotate) {
  lanes_.apart = 32;
  EXPECT_TRUE(Item().even) << "in place they stay";
  views_[0].y = memory_ + 512;
  EXPECT_FALSE(Item().even);
  lanes_ = {};
  plan_ = MakeHandPlan({.pairs = 0, .tail = 128});
  job_.plan = plan_.get();
  EXPECT_FALSE(Item().even) << "no pairs";
}

TEST_F(RotaryItemTest, LoadsFirstWhereHeadsShareLines) {
  EXPECT_FALSE(Item().loads_first);
  plan_ = MakeHandPlan({.pairs = 48});
  job_.plan = plan_.get();
  EXPECT_TRUE(Item().loads_first);
}

TEST_F(RotaryItemTest, PlainKernelsNumberTheirUnitsIn31Bits) {
  EXPECT_TRUE(Kernel().plain);
  EXPECT_TRUE(Kernel(int64_t{1} << 25).plain) << "40 units to a row";
  EXPECT_FALSE(Kernel(int64_t{1} << 26).plain);
}

// Images and videos have several axes, and sequences may be packed.
TEST_F(RotaryItemTest, PlainKernelsTakeWholePositionsOnAnyAxes) {
  const auto is_plain = [&](const Positions& positions, int axes) {
    plan_->spec.axes = axes;
    const PositionSource source = *MakePositionSource(positions, axes, "positions");
    job_.positions = &source;
    return Kernel().plain;
  };
  const auto grid = [](const AxisRange& last) {
    return PositionGrid{{AxisRange{IntegerRange{0, 1, 1}}, last}};
  };
  EXPECT_TRUE(is_plain(RaggedPositions{.lengths = {1, 2}, .offsets = {7, 0}}, 1));
  EXPECT_TRUE(is_plain(grid({IntegerRange{0, 2, 3}}), 2));
  EXPECT_FALSE(is_plain(grid({RealRange{0, 0.5, 3}}), 2));
  EXPECT_TRUE(is_plain(PositionTensor{Dtype::kInt64, {3, 3}}, 3));
  EXPECT_FALSE(is_plain(PositionTensor{Dtype::kFloat64, {3, 3}}, 3));
}

// Encodes on the host's grid and compares. Returns whether the item used wide rows.
bool GoesWide(const Plan& plan, const RowLayout& layout, Dtype dtype, int64_t misalign,
              int64_t row_columns) {
  constexpr int64_t kRows = 37;
  PositionSource positions =
      *MakePositionSource(AxisRange{RealRange{-3.5, 0.75, kRows}}, 1, "positions");
  Tensor want(dtype, kRows * row_columns, misalign), got(dtype, kRows * row_columns, misalign);
  const auto job_on = [&](Tensor& out) {
    EncodeJob job;
    job.plan = &plan;
    job.layout = &layout;
    job.positions = &positions;
    job.dtype = dtype;
    job.out = out.data();
    job.out_row_bytes = row_columns * SizeOf(dtype);
    return job;
  };
  RunReference(job_on(want));
  testing::RunOnHostGrid({job_on(got)});
  EXPECT_TRUE(got.GuardsIntact() && SameBits(want, got)) << row_columns;
  Arena arena;
  const RowBuffers buffers{got.data(), row_columns * SizeOf(dtype)};
  const EncodeItem item =
      MakeEncodeItem(job_on(got), CompileRow(layout), {0, kRows}, buffers, {arena, 1});
  return item.wide.used;
}

TEST(ItemsTest, AlignedRowsOfSinesAndCosinesGoWide) {
  const auto plan = MakeHandPlan({.pairs = 16}), odd = MakeHandPlan({.pairs = 17});
  for (const Dtype dtype : testing::kFloatDtypes) {
    for (const EncodeOutput output :
         {EncodeOutput::kSinCos, EncodeOutput::kCosSin, EncodeOutput::kComplex}) {
      const RowLayout layout = TableLayout(output, PairsOf(*plan));
      EXPECT_TRUE(GoesWide(*plan, layout, dtype, 0, 32));
      EXPECT_FALSE(GoesWide(*plan, layout, dtype, SizeOf(dtype), 32)) << "misaligned";
      EXPECT_FALSE(GoesWide(*plan, layout, dtype, 0, 33)) << "rows of odd strides";
      EXPECT_FALSE(GoesWide(*odd, TableLayout(output, PairsOf(*odd)), dtype, 0, 34));
    }
    const RowLayout twice = TableLayout(EncodeOutput::kSinCosRepeated, PairsOf(*plan));
    EXPECT_FALSE(GoesWide(*plan, twice, dtype, 0, 64)) << "two blocks";
  }
}

// Encodes rows of sines and cosines on the host's grid, so many that threads have several, and
// compares.
void ExpectWideRows(const PositionSource& positions, const RowLayout& layout, Dtype dtype) {
  const auto plan = MakeHandPlan({.pairs = 16});
  if (layout.cos_bias != 0) plan->amplitude = 0.75;
  Tensor want(dtype, positions.count() * 32), got(dtype, positions.count() * 32);
  EncodeJob job;
  job.plan = plan.get();
  job.layout = &layout;
  job.positions = &positions;
  job.dtype = dtype;
  job.out_row_bytes = 32 * SizeOf(dtype);
  job.out = want.data();
  RunReference(job);
  job.out = got.data();
  testing::RunOnHostGrid({job});
  EXPECT_TRUE(got.GuardsIntact() && SameBits(want, got)) << static_cast<int>(dtype);
}

TEST(ItemsTest, WideRowsOfAnyPositionsHaveTheReferencesBytes) {
  constexpr int64_t kRows = 2500;
  std::mt19937_64 random(1);
  std::vector<int64_t> numbers(kRows);
  for (int64_t& number : numbers) number = static_cast<int64_t>(random()) >> (random() % 64);
  const auto from = [&](Dtype dtype) {
    PositionSource source = *MakePositionSource(PositionTensor{dtype, {kRows}}, 1, "positions");
    source.data = reinterpret_cast<const std::byte*>(numbers.data());
    return source;
  };
  const PositionSource sources[] = {
      *MakePositionSource(AxisRange{IntegerRange{-700, 3, kRows}}, 1, "positions"),
      *MakePositionSource(AxisRange{IntegerRange{int64_t{1} << 40, -(int64_t{1} << 33), kRows}}, 1,
                          "positions"),
      *MakePositionSource(AxisRange{RealRange{-3.5, 0.75, kRows}}, 1, "positions"),
      from(Dtype::kInt32), from(Dtype::kInt64)};
  const TablePairs pairs = PairsOf(*MakeHandPlan({.pairs = 16}));
  RowLayout sine_first = TableLayout(EncodeOutput::kComplex, pairs);
  std::swap(sine_first.blocks[0].sin_begin, sine_first.blocks[0].cos_begin);
  RowLayout changed = TableLayout(EncodeOutput::kSinCos, pairs);
  changed.cos_bias = 0.25;
  const RowLayout layouts[] = {TableLayout(EncodeOutput::kSinCos, pairs),
                               TableLayout(EncodeOutput::kCosSin, pairs),
                               TableLayout(EncodeOutput::kComplex, pairs), sine_first, changed};
  for (const PositionSource& source : sources) {
    for (const RowLayout& layout : layouts) {
      for (const Dtype dtype : testing::kFloatDtypes) ExpectWideRows(source, layout, dtype);
    }
  }
}

TEST(ItemsTest, ParityIsNotSupported) {
  auto plan = MakeHandPlan({.pairs = 8});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, 3}}, 1, "positions");
  RotaryJob rotary;
  rotary.plan = plan.get();
  rotary.positions = &positions;
  EncodeJob encode;
  encode.plan = plan.get();
  encode.positions = &positions;
  EXPECT_TRUE(Supports(rotary));
  EXPECT_TRUE(Supports(encode));
  plan->parity.emplace();
  EXPECT_FALSE(Supports(rotary));
  EXPECT_FALSE(Supports(encode));
}

TEST(ItemsTest, DebertasDistancesBeyondItsThresholdsAreNotSupported) {
  BiasSpec spec;
  spec.preset = "deberta-v2";
  const auto rule = CompileBias(spec, 1, "bias");
  ASSERT_TRUE(rule.ok()) << rule.status();
  const int64_t limit = rule->buckets.limit();
  const auto range = [](int64_t start) {
    return *MakePositionSource(AxisRange{IntegerRange{start, 1, 1}}, 1, "positions");
  };
  const PositionSource origin = range(0), near = range(limit - 1), far = range(limit);
  BiasJob job;
  job.rule = &*rule;
  job.heads = 1;
  job.dtype = Dtype::kInt32;
  job.queries = &origin;
  for (const bool swapped : {false, true}) {
    (swapped ? job.queries : job.keys) = &near;
    (swapped ? job.keys : job.queries) = &origin;
    EXPECT_TRUE(Supports(job));
    (swapped ? job.queries : job.keys) = &far;
    EXPECT_FALSE(Supports(job));
  }
}

TEST(ItemsTest, BytesAreThoseOfWholeRows) {
  const auto plan = MakeHandPlan({.pairs = 8, .tail = 4});
  RotaryJob rotary;
  rotary.plan = plan.get();
  rotary.batch = 2;
  rotary.tokens = 5;
  rotary.tensors.resize(2);
  rotary.tensors[0].heads = 3;
  rotary.tensors[0].dtype = Dtype::kBFloat16;
  EXPECT_EQ(BytesOf(rotary).read, 10 * 3 * 20 * 2);
  EXPECT_EQ(BytesOf(rotary).written, 10 * 3 * 20 * 2);
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, 7}}, 1, "positions");
  EncodeJob encode;
  encode.plan = plan.get();
  encode.positions = &positions;
  encode.dtype = Dtype::kFloat64;
  const int64_t written = 7 * LayoutOf(encode).width * 8;
  EXPECT_EQ(BytesOf(encode).written, written);
  EXPECT_EQ(BytesOf(encode).read, 0);
  std::byte add_to{};
  encode.add_to = &add_to;
  EXPECT_EQ(BytesOf(encode).read, written);
}

TEST(ItemsTest, SlicesOfBatchesAreWholeEntriesOrPartsOfOne) {
  const auto plan = MakeHandPlan({.pairs = 8});
  RotaryJob job;
  job.plan = plan.get();
  job.batch = 4;
  job.tokens = 10;
  const auto slice = [&](int64_t first, int64_t most) {
    const Slice s = SliceFrom(job, first, most);
    return std::pair(s.first, s.count);
  };
  EXPECT_EQ(slice(0, 40), std::pair(int64_t{0}, int64_t{40}));
  EXPECT_EQ(slice(0, 25), std::pair(int64_t{0}, int64_t{20}));
  EXPECT_EQ(slice(0, 7), std::pair(int64_t{0}, int64_t{7}));
  EXPECT_EQ(slice(7, 7), std::pair(int64_t{7}, int64_t{3}));
  EXPECT_EQ(slice(30, 99), std::pair(int64_t{30}, int64_t{10}));
}

}  // namespace
}  // namespace phasor::cuda
