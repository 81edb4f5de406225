// SPDX-License-Identifier: Apache-2.0
// Chunks: how many rows fit in their buffers, and what staging puts there.
#include "kernels/cuda/chunk.h"

#include <gtest/gtest.h>

#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/random_jobs.h"
#include "tests/support/fake_driver.h"

namespace phasor::cuda {
namespace {

using testing::MakeHandPlan;
using testing::RandomJob;
using testing::Tensor;

TEST(ChunkTest, NeverOutgrowsItsCapacity) {
  for (const int64_t capacity : {int64_t{2} << 10, int64_t{10} << 10, int64_t{64} << 10}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      RandomJob random(seed, /*misaligned=*/true);
      if (!Supports(random.job())) continue;
      for (int64_t first = 0; first < RowsOf(random.job());) {
        Chunk chunk(capacity);
        const int64_t rows = chunk.Add(random.job(), first);
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

// Copies that stay on the device take room in the buffer that kernels write.
TEST(ChunkTest, CopiesOfTensorsOnTheDeviceCount) {
  constexpr int64_t kTokens = 300, kCapacity = int64_t{16} << 10;
  const auto device = std::make_shared<testing::FakeDevice>();
  testing::FakeDriver driver(device);
  DeviceLife life({}, [] { return absl::OkStatus(); });
  DeviceMemory memory(&driver, &life);
  const auto exported = device->Export(1 << 20);
  const auto allocation = *memory.Open(exported->handle());
  const auto plan = MakeHandPlan({.pairs = 16, .tail = 32, .pairing_out = Pairing::kInterleaved});
  const PositionSource positions =
      *MakePositionSource(AxisRange{IntegerRange{0, 1, kTokens}}, 1, "positions");
  Tensor host(Dtype::kFloat32, kTokens * 64);
  RotaryJob rotary;
  rotary.plan = plan.get();
  rotary.positions = &positions;
  rotary.tokens = kTokens;
  std::byte* const q = allocation->data();
  std::byte* const k = q + kTokens * 512;
  rotary.tensors = {{Dtype::kFloat32, 2, q, {0, 512, 256}, q, {0, 512, 256}},
                    {Dtype::kFloat32, 1, host.data(), {0, 256, 256}, host.data(), {0, 256, 256}},
                    {Dtype::kBFloat16, 1, k, {0, 128, 128}, k, {0, 128, 128}}};
  const Job job = rotary;
  Chunk chunk(kCapacity, &memory);
  const int64_t rows = chunk.Add(job, 0);
  // In a row, q copies two heads of 32 lanes, k copies one, and all lanes of what travels count.
  const int64_t row_bytes = 2 * 128 + 64 + 256;
  EXPECT_GE(rows, (kCapacity - 1024) / row_bytes);
  EXPECT_LE(chunk.buffer_bytes(), kCapacity);
  EXPECT_GE(chunk.buffer_bytes(), rows * row_bytes);
  EXPECT_GE(chunk.out_bytes(), rows * 256);
  EXPECT_LT(chunk.out_bytes(), rows * 256 + 256) << "copies do not come back";
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
  Chunk chunk(kCapacity);
  const int64_t rows = chunk.Add(Job(rotary), 0);
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
  Chunk chunk(30 << 10);
  EXPECT_EQ(chunk.Add(job, 0), 100);
  EXPECT_EQ(chunk.Add(job, 0), 100);
  const int64_t rest = chunk.Add(job, 0);
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
  Chunk chunk(1 << 16);
  ASSERT_EQ(chunk.Add(job, 0), 3);
  alignas(256) std::byte in[4096];
  auto* const device_in = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  auto* const device_out = reinterpret_cast<std::byte*>(uintptr_t{1} << 41);
  const auto launches = chunk.Stage(in, device_in, device_out);
  ASSERT_EQ(launches.size(), 1u);
  const auto offset = [&](const void* p) { return static_cast<const std::byte*>(p) - device_in; };
  ASSERT_LT(offset(launches[0].batch.items), chunk.in_bytes());
  RotaryItem item;
  std::memcpy(&item, in + offset(launches[0].batch.items), sizeof item);
  RotaryView view;
  ASSERT_LT(offset(item.views), chunk.in_bytes());
  std::memcpy(&view, in + offset(item.views), sizeof view);
  EXPECT_EQ(view.x, device_in);
  EXPECT_EQ(view.y, device_out);
  EXPECT_TRUE(launches[0].kernel.wide);
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
