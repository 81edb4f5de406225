// SPDX-License-Identifier: Apache-2.0
// Chunks: how many rows fit in their buffers, and what staging puts there.
#include "kernels/cuda/chunk.h"

#include <gtest/gtest.h>

#include <tuple>

#include "kernels/cuda/kernels.h"
#include "tests/support/fake_driver.h"
#include "tests/support/random_jobs.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;
using testing::MakeHandPlan;
using testing::RandomJob;
using testing::Tensor;

TEST(ChunkTest, NeverOutgrowsItsCapacity) {
  for (const int64_t capacity : {int64_t{2} << 10, int64_t{10} << 10, int64_t{64} << 10}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      RandomJob random(seed, /*misaligned=*/true);
      if (!Supports(random.job())) continue;
      const JobRows tensors = RowsOfTensors(random.job(), nullptr);
      for (int64_t first = 0; first < RowsOf(random.job());) {
        Chunk chunk(capacity, 1);
        const int64_t rows = chunk.Add(random.job(), tensors, first);
        ASSERT_LE(chunk.in_bytes(), capacity) << seed;
        ASSERT_LE(chunk.out_bytes(), capacity) << seed;
        if (rows == 0) {
          EXPECT_EQ(first, 0) << "rows of a job take the same: seed " << seed;
          EXPECT_TRUE(chunk.parts().empty());
          break;
        }
        first += rows;
      }
    }
  }
}

// Two items, each with its own packed positions.
TEST(ChunkTest, CountsPositionsOfEveryItem) {
  constexpr int64_t kTokens = 2000, kCapacity = int64_t{64} << 10;
  const auto plan = MakeHandPlan({.pairs = 16});
  RaggedPositions sequences;
  sequences.lengths.assign(kTokens, 1);
  const PositionSource positions = *MakePositionSource(sequences, 1, "positions");
  Tensor memory(Dtype::kBFloat16, 3 * kTokens * 32);
  RotaryJob rotary;
  rotary.plan = plan.get();
  rotary.positions = &positions;
  rotary.tokens = kTokens;
  std::byte* const out = memory.data() + kTokens * 64;
  rotary.tensors = {{Dtype::kBFloat16, 1, memory.data(), {0, 64, 64}, memory.data(), {0, 64, 64}},
                    {Dtype::kBFloat16, 1, memory.data(), {0, 64, 64}, out, {0, 32, 32}}};
  rotary.tensors[1].float8 = Float8::kE4M3;
  Chunk chunk(kCapacity, 1);
  const Job job = rotary;
  const JobRows tensors = RowsOfTensors(job, nullptr);
  const int64_t rows = chunk.Add(job, tensors, 0);
  EXPECT_LT(rows, kTokens);
  EXPECT_GT(rows, 300);
  EXPECT_LE(chunk.in_bytes(), kCapacity);
}

TEST(ChunkTest, TakesJobsUntilItIsFull) {
  const auto plan = MakeHandPlan({.pairs = 16});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, 100}}, 1, "positions");
  Tensor memory(Dtype::kFloat32, 100 * 32);
  RotaryJob rotary;
  rotary.plan = plan.get();
  rotary.positions = &positions;
  rotary.tokens = 100;
  rotary.tensors = {
      {Dtype::kFloat32, 1, memory.data(), {0, 128, 128}, memory.data(), {0, 128, 128}}};
  const Job job = rotary;
  const JobRows tensors = RowsOfTensors(job, nullptr);
  Chunk chunk(30 << 10, 1);
  EXPECT_EQ(chunk.Add(job, tensors, 0), 100);
  EXPECT_EQ(chunk.Add(job, tensors, 0), 100);
  const int64_t rest = chunk.Add(job, tensors, 0);
  EXPECT_GT(rest, 0);
  EXPECT_LT(rest, 100);
  EXPECT_EQ(chunk.parts().size(), 3u);
  EXPECT_EQ(chunk.parts()[2].slice.count, rest);
}

TEST(ChunkTest, StagesForWhereverTheDeviceIs) {
  const auto plan = MakeHandPlan({.pairs = 8});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{5, 1, 3}}, 1, "positions");
  Tensor memory(Dtype::kFloat32, 3 * 16);
  RotaryJob rotary;
  rotary.plan = plan.get();
  rotary.positions = &positions;
  rotary.tokens = 3;
  rotary.tensors = {{Dtype::kFloat32, 1, memory.data(), {0, 64, 64}, memory.data(), {0, 64, 64}}};
  const Job job = rotary;
  const JobRows tensors = RowsOfTensors(job, nullptr);
  Chunk chunk(1 << 16, 1);
  ASSERT_EQ(chunk.Add(job, tensors, 0), 3);
  alignas(256) std::byte in[4096];
  auto* const device_in = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  auto* const device_out = reinterpret_cast<std::byte*>(uintptr_t{1} << 41);
  const auto launches = chunk.Stage(in, device_in, device_out);
  ASSERT_EQ(launches.size(), 1u);
  const Batch& batch = launches[0].batch;
  EXPECT_EQ(batch.arena - device_in, 256) << "after three rows of a tensor";
  EXPECT_EQ(batch.host - in, 256);
  ASSERT_LE(256 + batch.arena_bytes, chunk.in_bytes());
  RotaryItem item;
  std::memcpy(&item, batch.host + batch.items, sizeof item);
  EXPECT_EQ(item.views[0].heads, 1);
  EXPECT_GE(item.first_heads[1], 1);
  EXPECT_EQ(item.views[0].x, device_in);
  EXPECT_EQ(item.views[0].y, device_out);
  EXPECT_TRUE(launches[0].kernel.wide);
}

// Many small jobs share the multiprocessors, so that a launch of all has no more blocks than it
// needs.
TEST(ChunkTest, JobsShareTheMultiprocessors) {
  constexpr int64_t kHeadBytes = 128 * 2, kTokenBytes = 40 * kHeadBytes;
  const auto plan = MakeHandPlan({.pairs = 64});
  const PositionSource position =
      *MakePositionSource(AxisRange{IntegerRange{7, 1, 1}}, 1, "positions");
  std::vector<std::byte> memory(kTokenBytes);
  const RotaryStrides strides{0, kTokenBytes, kHeadBytes};
  RotaryJob rotary;
  rotary.plan = plan.get();
  rotary.positions = &position;
  rotary.tokens = 1;
  rotary.tensors = {{Dtype::kBFloat16, 40, memory.data(), strides, memory.data(), strides}};
  const Job job = rotary;
  const JobRows tensors = RowsOfTensors(job, nullptr);
  const auto blocks_of = [&](int jobs) {
    Chunk chunk(int64_t{16} << 20, 132);
    for (int i = 0; i < jobs; ++i) EXPECT_EQ(chunk.Add(job, tensors, 0), 1);
    std::vector<std::max_align_t> in(chunk.in_bytes() / sizeof(std::max_align_t) + 1);
    auto* const device = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
    const auto launches = chunk.Stage(reinterpret_cast<std::byte*>(in.data()), device, device);
    EXPECT_EQ(launches.size(), 1u);
    return launches[0].batch.blocks;
  };
  EXPECT_EQ(blocks_of(1), 4);
  EXPECT_EQ(blocks_of(256), 2 * 256);
}

// Rotations of 500 tokens in the host's memory, queued on a fake device.
class QueueTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTensorBytes = 500 * 64;

  absl::Status Queue(const Positions& positions, int types = 1) {
    const PositionSource source = *MakePositionSource(positions, 1, "positions");
    RotaryJob rotary;
    rotary.plan = plan_.get();
    rotary.positions = &source;
    rotary.tokens = 500;
    for (int i = 0; i < types; ++i) {
      std::byte* const x = memory_.data() + i * kTensorBytes;
      const Dtype dtype = i == 0 ? Dtype::kFloat32 : Dtype::kBFloat16;
      rotary.tensors.push_back({dtype, 1, x, {0, 64, 64}, x, {0, 64, 64}});
    }
    const Job job = rotary;
    const JobRows rows = RowsOfTensors(job, nullptr);
    Chunk chunk(1 << 20, 1);
    EXPECT_EQ(chunk.Add(job, rows, 0), 500);
    return chunk.Queue(*slot_, driver_, &launched_);
  }

  const std::shared_ptr<const Plan> plan_ = MakeHandPlan({.pairs = 8});
  Tensor memory_{Dtype::kFloat32, 2 * 500 * 16};
  const std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  FakeDriver driver_{device_};
  Slots slots_{&driver_, 1};
  Slot* const slot_ = *slots_.Take(1 << 20, /*wait=*/true);
  int64_t launched_ = -1;
};

TEST_F(QueueTest, ASmallArenaTravelsWithTheLaunch) {
  memory_.Fill(1);
  ASSERT_TRUE(Queue(AxisRange{IntegerRange{5, 1, 500}}).ok());
  ASSERT_TRUE(driver_.Synchronize(slot_->stream).ok());
  EXPECT_EQ(launched_, 1);
  EXPECT_EQ(std::memcmp(slot_->device_in, memory_.data(), kTensorBytes), 0);
  const std::byte untouched = slot_->device_in[slot_->capacity - 1];
  for (int64_t at = AlignUp(kTensorBytes, 256); at < slot_->capacity; ++at) {
    ASSERT_EQ(slot_->device_in[at], untouched) << at;
  }
  EXPECT_EQ(std::memcmp(slot_->host_out, slot_->device_out, kTensorBytes), 0);
}

// Positions that do not fit in the arguments of a launch are sent before it.
TEST_F(QueueTest, ALargeArenaIsSentBeforeTheLaunch) {
  ASSERT_TRUE(Queue(RaggedPositions{std::vector<int64_t>(500, 1)}).ok());
  ASSERT_TRUE(driver_.Synchronize(slot_->stream).ok());
  const int64_t begin = AlignUp(kTensorBytes, 256);
  EXPECT_EQ(std::memcmp(slot_->device_in + begin, slot_->host_in + begin, 500 * 16), 0);
}

TEST_F(QueueTest, CountsWhatWasLaunchedBeforeAnError) {
  for (const auto& [call, number, launched] :
       {std::tuple("CopyToDevice", 0, 0), std::tuple("Run", 0, 0), std::tuple("Run", 2, 1),
        std::tuple("CopyToHost", 0, 2)}) {
    device_->FailWith(
        [call = std::string(call), number = number](const std::string& name, int64_t n) {
          return name == call && n == number ? absl::InternalError("refused") : absl::OkStatus();
        });
    EXPECT_EQ(Queue(AxisRange{IntegerRange{5, 1, 500}}, /*types=*/2).code(),
              absl::StatusCode::kInternal);
    EXPECT_EQ(launched_, launched) << call << " " << number;
  }
}

TEST(ChunkTest, InPlaceIsWhatCannotRunTwice) {
  std::byte a[8], b[8];
  EncodeJob encode;
  encode.out = a;
  EXPECT_FALSE(IsInPlace(encode));
  encode.add_to = b;
  EXPECT_FALSE(IsInPlace(encode));
  encode.add_to = a;
  EXPECT_TRUE(IsInPlace(encode));
  RotaryJob rotary;
  rotary.tensors = {{Dtype::kFloat32, 1, a, {}, b, {}}};
  EXPECT_FALSE(IsInPlace(rotary));
  rotary.tensors.push_back({Dtype::kFloat32, 1, a, {}, a, {}});
  EXPECT_TRUE(IsInPlace(rotary));
  const absl::Span<const std::byte> pieces[] = {b};
  rotary.tensors[1].pieces = pieces;
  EXPECT_FALSE(IsInPlace(rotary));
}

}  // namespace
}  // namespace phasor::cuda
