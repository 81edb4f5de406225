// SPDX-License-Identifier: Apache-2.0
// Tests GPU memory end to end, over TCP and a Unix socket: the bytes must equal those of calls in
// process. The GPU is a fake; this has not run on hardware.
#include <cstring>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/e2e/device_server.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::testing::Each;

// What `x`, [tokens, heads, 64], becomes in process.
std::vector<float> Turned(const Client& here, std::vector<float> x, int64_t tokens) {
  const int64_t heads = tokens == 0 ? 1 : static_cast<int64_t>(x.size()) / tokens / 64;
  EXPECT_THAT(here.ApplyRoPE(kLlama, IntegerRange{.start = 5, .count = tokens},
                             {MutableView(x, {tokens, heads, 64})}),
              IsOk());
  return x;
}

TEST_F(ClientDeviceTest, RotationsHaveTheBytesOfThoseInProcess) {
  for (const Client& client : {tcp_, unix_}) {
    const DeviceMemory memory = Register(client, Allocation());
    EXPECT_EQ(memory.size(), memory_->bytes() - kOffset);
    for (const Dtype dtype :
         {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
      for (const int64_t tokens : {0, 1, 70}) {
        const TensorDesc desc{dtype, {tokens, 3, kHead}, {}};
        const int64_t bytes = tokens * 3 * kHead * SizeOf(dtype);
        std::vector<std::byte> expected(static_cast<size_t>(bytes));
        for (size_t i = 0; i < expected.size(); ++i) {
          expected[i] =
              static_cast<std::byte>((i + 1) % static_cast<size_t>(SizeOf(dtype)) == 0 ? 0x3F : i);
        }
        std::memcpy(data() + 128, expected.data(), expected.size());
        const IntegerRange positions{.start = 5, .count = tokens};
        ASSERT_THAT(
            here_.ApplyRoPE(kLlama, positions, {MutableTensorView{desc, expected.data(), bytes}}),
            IsOk());
        const MutableTensorView tensor = memory.View(desc, 128);
        const int64_t copies = device().calls("CopyToHost");
        auto info = client.ApplyRoPE(kLlama, positions, {{tensor, memory.View(desc, 1 << 19)}});
        ASSERT_THAT(info, IsOk());
        EXPECT_EQ(std::memcmp(data() + (1 << 19), expected.data(), expected.size()), 0);
        info = client.ApplyRoPE(kLlama, positions, {tensor});
        ASSERT_THAT(info, IsOk());
        EXPECT_EQ(std::memcmp(data() + 128, expected.data(), expected.size()), 0) << "in place";
        EXPECT_EQ(info->backend, "cuda");
        EXPECT_EQ(device().calls("CopyToHost"), copies);
      }
    }
  }
}

// q and k of a token side by side in rows that have more, all of one buffer.
TEST_F(ClientDeviceTest, FusedBuffersAreRotatedInPlace) {
  constexpr int64_t kTokens = 20, kRow = 5 * kHead;
  const DeviceMemory memory = Register(tcp_, Allocation());
  std::vector<float> rows = Ramp(kTokens * kRow);
  Put(256, rows);
  const std::vector<int64_t> strides = {kRow, kHead, 1};
  const auto k = absl::MakeSpan(rows).subspan(3 * kHead);
  const IntegerRange positions{.count = kTokens};
  ASSERT_THAT(here_.ApplyRoPE(kLlama, positions,
                              {MutableView(rows, {kTokens, 3, kHead}, strides),
                               MutableView(k, {kTokens, 1, kHead}, strides)}),
              IsOk());
  ASSERT_THAT(tcp_.ApplyRoPE(kLlama, positions,
                             {memory.View(Heads(kTokens, 3, strides), 256),
                              memory.View(Heads(kTokens, 1, strides), 256 + 3 * kHead * 4)}),
              IsOk());
  EXPECT_EQ(Floats(256, rows.size()), rows);
}

TEST_F(ClientDeviceTest, ACallMayMixMemoryOfAllKinds) {
  constexpr int64_t kTokens = 500;  // enough to be staged, were it all of the host
  const std::vector<int64_t> shape = {kTokens, 3, kHead};
  const DeviceMemory memory = Register(unix_, Allocation());
  const std::vector<float> q = Ramp(kTokens * 3 * kHead);
  const std::vector<float> expected = Turned(here_, q, kTokens);
  const auto leased = unix_.AllocateShared(static_cast<int64_t>(q.size() * sizeof(float)));
  ASSERT_THAT(leased, IsOk());
  ASSERT_TRUE(leased->shared());
  Put(0, q);
  for (int i = 0; i < 3; ++i) {
    std::vector<float> from_device(q.size());
    std::memcpy(leased->data(), q.data(), q.size() * sizeof(float));
    const auto info =
        unix_.ApplyRoPE(kLlama, IntegerRange{.start = 5, .count = kTokens},
                        {{memory.View(Heads(kTokens, 3)), MutableView(from_device, shape)},
                         {View(q, shape), memory.View(Heads(kTokens, 3), 1 << 19)},
                         MutableView(leased->span<float>(), shape)});
    ASSERT_THAT(info, IsOk());
    EXPECT_EQ(from_device, expected);
    EXPECT_EQ(Floats(1 << 19, q.size()), expected);
    EXPECT_EQ(std::memcmp(leased->data(), expected.data(), q.size() * sizeof(float)), 0);
    EXPECT_EQ(Floats(0, q.size()), q);
  }
}

TEST_F(ClientDeviceTest, EncodingsAreWrittenAndAddedThere) {
  constexpr int64_t kTokens = 50, kDim = 32;
  const DeviceMemory memory = Register(unix_, Allocation());
  std::vector<float> rows = Ramp(kTokens * kDim);
  Put(64, rows);
  const MutableTensorView place = memory.View({Dtype::kFloat32, {kTokens, kDim}, {}}, 64);
  EncodeCall call{.spec = {.preset = "transformer", .dim = kDim},
                  .positions = IntegerRange{.count = kTokens},
                  .add_to = place,
                  .embedding_scale = 2,
                  .output = place};
  ASSERT_THAT(unix_.Encode(call), IsOk());
  call.add_to = call.output = MutableView(rows, {kTokens, kDim});
  ASSERT_THAT(here_.Encode(call), IsOk());
  EXPECT_EQ(Floats(64, rows.size()), rows) << "in place";
  ASSERT_THAT(unix_.Encode(call.spec, call.positions, place), IsOk());
  ASSERT_THAT(here_.Encode(call.spec, call.positions, absl::MakeSpan(rows)), IsOk());
  EXPECT_EQ(Floats(64, rows.size()), rows);
  call.output.reset();
  const auto expected = here_.Encode(call);
  call.add_to = place;
  const auto returned = unix_.Encode(call);
  ASSERT_THAT(returned, IsOk());
  EXPECT_EQ(std::memcmp(returned->bytes.data(), expected->bytes.data(), rows.size() * 4), 0);
}

TEST_F(ClientDeviceTest, ItemsOfBatchesMayLieThere) {
  const DeviceMemory memory = Register(tcp_, Allocation());
  const std::vector<float> q = Ramp(4 * kHead);
  std::vector<float> mine = q;
  Put(0, q);
  const IntegerRange positions{.start = 5, .count = 4};
  const auto call = [&](const RopeTensor& tensor) {
    return RopeCall{.spec = kLlama, .positions = positions, .tensors = {tensor}};
  };
  const auto results = tcp_.BatchApplyRoPE({call(memory.View(Heads(4, 1))),
                                            call(memory.View(Heads(4, 1), memory.size())),
                                            call(MutableView(mine, {4, 1, kHead}))});
  ASSERT_THAT(results, IsOk());
  ASSERT_EQ(results->size(), 3u);
  EXPECT_THAT((*results)[0], IsOk());
  EXPECT_EQ((*results)[1].status(),
            absl::InvalidArgumentError("items[1].tensors[0].tensor: 0 bytes of memory; "
                                       "must be the 1024 that FLOAT32 [4, 1, 64] spans"));
  EXPECT_THAT((*results)[2], IsOk());
  EXPECT_EQ(mine, Turned(here_, q, 4));
  EXPECT_EQ(Floats(0, q.size()), mine);

  const EncodeCall rows{.spec = {.preset = "transformer", .dim = 32}, .positions = {3, 4}};
  EncodeCall there = rows;
  there.output = memory.View({Dtype::kFloat32, {2, 32}, {}}, 4096);
  const auto encoded = tcp_.BatchEncode({there, rows});
  ASSERT_THAT(encoded, IsOk());
  ASSERT_THAT((*encoded)[0], IsOk());
  ASSERT_THAT((*encoded)[1], IsOk());
  EXPECT_EQ((*encoded)[0]->bytes.size(), 0);
  EXPECT_EQ(std::memcmp(data() + 4096, (*encoded)[1]->bytes.data(), 2 * 32 * 4), 0);
}

TEST_F(ClientDeviceTest, ItemsOfStreamsMayLieThere) {
  for (const Client& client : {tcp_, unix_}) {
    const DeviceMemory memory = Register(client, Allocation());
    const std::vector<float> q = Ramp(4 * kHead);
    const auto stream = client.StreamApplyRoPE();
    for (int64_t id = 0; id < 3; ++id) {
      Put(id * 4096, q);
      ASSERT_THAT(stream->Write(id, {.spec = kLlama,
                                     .positions = IntegerRange{.start = 5, .count = 4},
                                     .tensors = {memory.View(Heads(4, 1), id * 4096)}}),
                  IsOk());
    }
    EXPECT_THAT(stream->Write(9, {.spec = kLlama, .tensors = {memory.View(Heads(4, 1), -4)}}),
                testing::StatusIs(testing::kInvalid,
                                  "item.tensors[0].tensor.device.offset_bytes: "
                                  "-4; must be in [0, 1040384]"));
    for (int i = 0; i < 3; ++i) {
      const auto answer = stream->Read();
      ASSERT_TRUE(answer.has_value());
      EXPECT_THAT(answer->result, IsOk());
      EXPECT_EQ(Floats(answer->id * 4096, q.size()), Turned(here_, q, 4));
    }
    EXPECT_THAT(stream->Finish(), IsOk());

    const auto rows = client.StreamEncode();
    const EncodeCall call{.spec = {.preset = "transformer", .dim = 32},
                          .positions = {3, 4},
                          .output = memory.View({Dtype::kFloat32, {2, 32}, {}}, 512)};
    ASSERT_THAT(rows->Write(1, call), IsOk());
    EXPECT_THAT(rows->Read()->result, IsOk());
    EXPECT_THAT(rows->Finish(), IsOk());
    const auto expected = here_.Encode({.preset = "transformer", .dim = 32}, {3, 4});
    EXPECT_EQ(std::memcmp(data() + 512, expected->data(), 2 * 32 * 4), 0);
  }
}

TEST_F(ClientDeviceTest, AsynchronousCallsAndOtherConnectionsFindIt) {
  const Client client = Connect(server_->listeners()[0], {.channels = 3});
  const DeviceMemory memory = Register(client, Allocation());
  const std::vector<float> q = Ramp(4 * kHead);
  std::vector<float> mine = q;
  for (int turn = 0; turn < 6; ++turn) {
    Put(0, q);
    RopeCall call{.spec = kLlama,
                  .positions = IntegerRange{.start = 5, .count = 4},
                  .tensors = {memory.View(Heads(4, 1))}};
    EXPECT_THAT(client.ApplyRoPEAsync(call).get(), IsOk());
    EXPECT_EQ(Floats(0, q.size()), Turned(here_, q, 4));
    call.tensors = {MutableView(mine, {4, 1, kHead})};
    EXPECT_THAT(client.ApplyRoPE(call), IsOk()) << "takes another turn";
  }
}

TEST_F(ClientDeviceTest, KeysAndValuesGoToPages) {
  constexpr int64_t kTokens = 4, kPages = 2, kSlots = 4;
  const DeviceMemory memory = Register(unix_, Allocation());
  const std::vector<float> k = Ramp(kTokens * kHead);
  std::vector<float> keys(kPages * kSlots * kHead, 7), values = keys;
  const std::vector<int32_t> slots = {5, 0, -1, 7};
  const TensorDesc pages{Dtype::kFloat32, {kPages, kSlots, 1, kHead}, {}};
  const auto bytes = static_cast<int64_t>(keys.size() * sizeof(float));
  const auto call = [&](MutableTensorView key_cache, MutableTensorView value_cache) {
    RopeCall made{.spec = kLlama, .positions = IntegerRange{.start = 5, .count = kTokens}};
    made.tensors = {{View(k, {kTokens, 1, kHead}), std::move(key_cache)}};
    made.paged = PagedWrite{.values = {View(k, {kTokens, 1, kHead}), std::move(value_cache)},
                            .slot_mapping = View(slots, {kTokens})};
    return made;
  };
  Put(0, keys);
  Put(bytes, values);
  ASSERT_THAT(
      here_.ApplyRoPE(call(MutableView(keys, pages.shape), MutableView(values, pages.shape))),
      IsOk());
  const auto info = unix_.ApplyRoPE(call(memory.View(pages), memory.View(pages, bytes)));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->backend, "cuda");
  EXPECT_EQ(Floats(0, keys.size()), keys);
  EXPECT_EQ(Floats(bytes, values.size()), values);
  EXPECT_NE(keys, values);
  EXPECT_THAT(std::vector<float>(keys.begin() + 64, keys.begin() + 128), Each(7)) << "no slot";

  // The two caches in turns, page by page.
  TensorDesc strided = pages;
  strided.strides = {2 * kSlots * kHead, kHead, kHead, 1};
  Put(0, std::vector<float>(keys.size() * 2, 7));
  ASSERT_THAT(unix_.ApplyRoPE(call(memory.View(strided), memory.View(strided, bytes / 2))), IsOk());
  const auto page = [&](const std::vector<float>& cache, size_t i) {
    return std::vector<float>(
        cache.begin() + static_cast<std::ptrdiff_t>(i * kSlots * kHead),
        cache.begin() + static_cast<std::ptrdiff_t>((i + 1) * kSlots * kHead));
  };
  for (size_t i = 0; i < kPages; ++i) {
    const auto at = static_cast<int64_t>(i) * bytes;
    EXPECT_EQ(Floats(at, kSlots * kHead), page(keys, i));
    EXPECT_EQ(Floats(at + bytes / 2, kSlots * kHead), page(values, i));
  }
}

TEST_F(ClientDeviceTest, MemoryIsUnregisteredWithItsOwner) {
  {
    DeviceMemory first = Register(tcp_, Allocation());
    DeviceMemory second = Register(unix_, Allocation());
    EXPECT_EQ(device().open_mappings(), 1) << "one handle";
    DeviceMemory moved = std::move(first);
    second = std::move(moved);
    EXPECT_EQ(first.size() + moved.size(), 0);
    EXPECT_EQ(device().open_mappings(), 1);
    EXPECT_THAT(tcp_.ApplyRoPE(kLlama, {1}, {second.View(Heads(1, 1))}), IsOk());
  }
  EXPECT_EQ(device().open_mappings(), 0);

  DeviceMemory memory;
  EXPECT_THAT(memory.Release(), IsOk());
  {
    const Client short_lived = Connect(server_->listeners()[0]);
    memory = Register(short_lived, Allocation());
  }
  EXPECT_EQ(device().open_mappings(), 1);
  EXPECT_THAT(memory.Release(), IsOk()) << "it keeps the connection";
  EXPECT_EQ(device().open_mappings(), 0);
  EXPECT_EQ(memory.size(), 0);
  EXPECT_THAT(memory.Release(), IsOk()) << "nothing is held";
}

}  // namespace
}  // namespace phasor
