// SPDX-License-Identifier: Apache-2.0
// Tests the checks of a call's memory, strides and outputs.
#include "client/common/calls.h"

#include <numeric>
#include <vector>

#include "client/device_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace phasor::client_internal {
namespace {

using ::testing::ElementsAre;

using ::phasor::testing::kInvalid;

TEST(CallsTest, RejectsMemorySmallerThanItsShape) {
  std::vector<float> small(7);
  EncodeCall call;
  call.add_to = View(small, {2, 4});
  EXPECT_EQ(ToRequest(call, "item").status(),
            absl::InvalidArgumentError(
                "item.add_to: 28 bytes of memory; must be the 32 that FLOAT32 [2, 4] spans"));
  call.add_to.reset();
  call.output = MutableView(small, {2, 4});
  EXPECT_EQ(ToRequest(call, "item").status().code(), kInvalid);
  call.output.reset();
  call.positions = View(std::vector<int64_t>(3), {4});
  EXPECT_EQ(
      ToRequest(call, "items[2]").status(),
      absl::InvalidArgumentError(
          "items[2].positions.tensor: 24 bytes of memory; must be the 32 that INT64 [4] spans"));
}

TEST(CallsTest, StridesReachToTheLastElementOnly) {
  std::vector<float> memory(3 * 10 + 4);
  RopeCall call;
  call.tensors = {MutableView(memory, {4, 1, 4}, {10, 4, 1})};
  EXPECT_TRUE(ToRequest(call, "item").ok());
  memory.pop_back();
  call.tensors = {MutableView(memory, {4, 1, 4}, {10, 4, 1})};
  EXPECT_EQ(ToRequest(call, "item").status().code(), kInvalid);
}

TEST(CallsTest, MemoryOfAGpuIsItsConnections) {
  const auto connection = std::make_shared<int>();
  DeviceMemory memory(std::make_shared<DeviceRegistration>(
      "kv", 64, connection, [](absl::Duration) { return absl::OkStatus(); }));
  const TensorDesc desc{Dtype::kFloat32, {2, 1, 4}, {}};
  RopeCall call;
  call.tensors = {{memory.View(desc), memory.View(desc, 32)}, memory.View(desc)};
  EXPECT_TRUE(ToRequest(call, "item", connection.get()).ok()) << "same data, not in place";
  for (const void* const other : std::vector<const void*>{nullptr, &call}) {
    EXPECT_EQ(ToRequest(call, "item", other).status().code(), kInvalid);
  }
  call.tensors = {memory.View(desc, 36)};
  EXPECT_EQ(ToRequest(call, "item", connection.get()).status(),
            absl::InvalidArgumentError("item.tensors[0].tensor: 28 bytes of memory; "
                                       "must be the 32 that FLOAT32 [2, 1, 4] spans"));
  call.tensors = {memory.View(desc, 65)};
  EXPECT_EQ(ToRequest(call, "item", connection.get()).status(),
            absl::InvalidArgumentError("item.tensors[0].tensor.device.offset_bytes: 65; must be in "
                                       "[0, 64]"));
  call.tensors = {{memory.View(desc), memory.View({desc.dtype, desc.shape, {8, 4, 1}}, 0)}};
  EXPECT_EQ(ToRequest(call, "item", connection.get()).status(),
            absl::InvalidArgumentError("item.tensors[0].output: in place with other strides; must "
                                       "be the input's"));
  call.tensors = {memory.View(desc)};
  EXPECT_TRUE(memory.Release().ok());
  EXPECT_EQ(ToRequest(call, "item", connection.get()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(CallsTest, RejectsOutputsUnlikeTheirInputs) {
  std::vector<float> x(8), y(8);
  std::vector<double> wide(8);
  RopeCall call;
  call.tensors = {{View(x, {2, 1, 4}), MutableView(y, {1, 2, 4})}};
  EXPECT_EQ(ToRequest(call, "item").status(),
            absl::InvalidArgumentError("item.tensors[0].output: FLOAT32 [1, 2, 4]; must be as the "
                                       "input, FLOAT32 [2, 1, 4]"));
  call.tensors = {{View(x, {2, 1, 4}), MutableView(wide, {2, 1, 4})}};
  EXPECT_EQ(ToRequest(call, "item").status().code(), kInvalid);
}

TEST(CallsTest, OutputsOfFloat8AreAskedForByTheirType) {
  std::vector<BFloat16> x(8);
  std::vector<Float8E4M3> y(8);
  RopeCall call;
  call.tensors = {{View(x, {2, 1, 4}), MutableView(y, {2, 1, 4})}, MutableView(x, {2, 1, 4})};
  call.tensors[0].inv_scale = 2.0f;
  const auto request = ToRequest(call, "item");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->outputs[0].dtype, Dtype::kFloat8E4M3);
  EXPECT_EQ(request->outputs[0].inv_scale, 2.0f);
  EXPECT_EQ(request->outputs[1].dtype, std::nullopt);
  y.resize(7);
  call.tensors[0].output = MutableView(y, {2, 1, 4});
  EXPECT_EQ(ToRequest(call, "item").status(),
            absl::InvalidArgumentError("item.tensors[0].output: 7 bytes of memory; must be the 8 "
                                       "that FLOAT8_E4M3 [2, 1, 4] spans"));
}

TEST(CallsTest, PagesMustBeThere) {
  std::vector<BFloat16> k(16), v(16), key_cache(64), value_cache(64);
  std::vector<int64_t> slots(2);
  RopeCall call;
  call.tensors = {{View(k, {2, 1, 8}), MutableView(key_cache, {2, 4, 1, 8})}};
  PagedWrite& paged = call.paged.emplace();
  paged.values = {View(v, {2, 1, 8}), MutableView(value_cache, {2, 4, 1, 8})};
  paged.slot_mapping = View(slots, {2});
  const auto request = ToRequest(call, "item");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->paged_cache->key_cache.shape, (std::vector<int64_t>{2, 4, 1, 8}));
  EXPECT_EQ(request->outputs[0].dtype, std::nullopt) << "the cache's type says it";
  const auto expect_refused = [&](const std::string& message) {
    EXPECT_EQ(ToRequest(call, "item").status(), absl::InvalidArgumentError(message));
  };
  paged.slot_mapping.bytes = 15;
  expect_refused(
      "item.paged_cache.slot_mapping: 15 bytes of memory; must be the 16 that INT64 [2] spans");
  paged.slot_mapping.bytes = 16;
  paged.values.output.bytes = 127;
  expect_refused(
      "item.paged_cache.value_cache: 127 bytes of memory; must be the 128 that "
      "BFLOAT16 [2, 4, 1, 8] spans");
  paged.values.output.bytes = 128;
  call.tensors[0].output.desc.strides = {32, 8, 8, 1};
  call.tensors[0].output.bytes = 126;
  expect_refused(
      "item.paged_cache.key_cache: 126 bytes of memory; must be the 128 that "
      "BFLOAT16 [2, 4, 1, 8] spans");
  paged.key_index = 1;
  expect_refused("item.paged_cache.key_index: 1; must be in [0, 1)");
}

TEST(CallsTest, RejectsInPlaceWithOtherStrides) {
  std::vector<float> x(32);
  RopeCall call;
  call.tensors = {{View(x, {2, 2, 4}), MutableView(x, {2, 2, 4}, {16, 4, 1})}};
  EXPECT_EQ(ToRequest(call, "item").status(),
            absl::InvalidArgumentError(
                "item.tensors[0].output: in place with other strides; must be the input's"));
}

TEST(CallsTest, RejectsInPlaceWithAnotherType) {
  std::vector<BFloat16> x(8);
  RopeCall call;
  call.tensors = {MutableView(x, {2, 1, 4})};
  call.tensors[0].output.desc.dtype = Dtype::kFloat8E4M3;
  call.tensors[0].output.bytes = 8;
  EXPECT_EQ(ToRequest(call, "item").status(),
            absl::InvalidArgumentError(
                "item.tensors[0].output: in place with another type; must be elsewhere"));
}

TEST(CallsTest, RejectsStridedPositions) {
  const std::vector<int64_t> numbers(8);
  EncodeCall call;
  call.positions = View(numbers, {4}, {1});
  EXPECT_EQ(ToRequest(call, "item").status().code(), kInvalid);
}

TEST(CallsTest, PositionBytesAreThoseOfTheShape) {
  const std::vector<int32_t> numbers(10);
  EXPECT_EQ(PositionBytes(View(numbers, {3, 2})).size(), 24u);
  EXPECT_TRUE(PositionBytes(IntegerRange{.count = 5}).empty());
}

TEST(CallsTest, DenseStridesAreRecognised) {
  EXPECT_TRUE(IsDense({Dtype::kFloat32, {2, 3, 4}, {}}));
  EXPECT_TRUE(IsDense({Dtype::kFloat32, {2, 3, 4}, {12, 4, 1}}));
  EXPECT_TRUE(IsDense({Dtype::kFloat32, {1, 3, 4}, {99, 4, 1}}));
  EXPECT_FALSE(IsDense({Dtype::kFloat32, {2, 3, 4}, {24, 4, 1}}));
}

TEST(CallsTest, LayoutsDifferInTokenAndHeadStrides) {
  const TensorDesc tensor = {Dtype::kFloat16, {2, 3, 5, 8}, {}};
  const RotaryStrides tokens_first = RotaryStridesOf(tensor, RopeLayout::kTokensHeads);
  EXPECT_EQ(tokens_first.batch, 240);
  EXPECT_EQ(tokens_first.token, 80);
  EXPECT_EQ(tokens_first.head, 16);
  const RotaryStrides heads_first = RotaryStridesOf(tensor, RopeLayout::kHeadsTokens);
  EXPECT_EQ(heads_first.token, 16);
  EXPECT_EQ(heads_first.head, 80);
  EXPECT_EQ(RotaryStridesOf({Dtype::kFloat16, {3, 5, 8}, {}}, RopeLayout::kTokensHeads).batch, 0);
}

TEST(CallsTest, FlatOutputsTakeAsManyElements) {
  std::vector<float> out(12);
  const TensorDesc result = {Dtype::kFloat32, {3, 4}, {}};
  EXPECT_TRUE(CheckOutput(MutableView(out, {3, 4}), result, "item.output").ok());
  EXPECT_TRUE(CheckOutput(MutableView(out, {12}), result, "item.output").ok());
  EXPECT_EQ(CheckOutput(MutableView(out, {4, 3}), result, "item.output"),
            absl::InvalidArgumentError("item.output: FLOAT32 [4, 3]; must be FLOAT32 [3, 4]"));
}

TEST(CallsTest, StridedCopiesAreInversesAndLeaveGapsAlone) {
  std::vector<float> memory(2 * 3 * 8);
  std::iota(memory.begin(), memory.end(), 0.0f);
  const std::vector<float> before = memory;
  MutableTensorView view = MutableView(memory, {2, 3, 2}, {24, 8, 1});
  std::vector<float> dense(12);
  CopyToDense(view, reinterpret_cast<std::byte*>(dense.data()));
  EXPECT_THAT(dense, ElementsAre(0, 1, 8, 9, 16, 17, 24, 25, 32, 33, 40, 41));
  for (float& x : dense) x = -x;
  CopyFromDense(reinterpret_cast<const std::byte*>(dense.data()), view);
  for (size_t i = 0; i < memory.size(); ++i) {
    EXPECT_EQ(memory[i], i % 8 < 2 ? -before[i] : before[i]) << i;
  }
}

TEST(CallsTest, TransposedViewsGatherInIndexOrder) {
  std::vector<float> memory = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<float> dense(12);
  // [tokens 2, heads 3, lanes 2] stored heads first.
  CopyToDense(View(memory, {2, 3, 2}, {2, 4, 1}), reinterpret_cast<std::byte*>(dense.data()));
  EXPECT_THAT(dense, ElementsAre(0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11));
}

TEST(CallsTest, PoolsOfAMoveLieApart) {
  std::vector<std::byte> memory(100);
  const auto part = [&](size_t first, size_t count) {
    return absl::MakeSpan(memory).subspan(first, count);
  };
  MoveCall call{.pools = {part(40, 60), part(0, 40)}};
  const auto request = ToRequest(call, "item");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->pools, ElementsAre(60, 40));
  call.pools[1] = part(0, 41);
  EXPECT_EQ(ToRequest(call, "item").status(),
            absl::InvalidArgumentError("item.pools[0]: overlaps item.pools[1]; must be one pool "
                                       "with several places"));
  call.pools = {part(10, 5), part(10, 5)};
  EXPECT_EQ(ToRequest(call, "item").status().code(), kInvalid);
  call.pools = {part(10, 5), part(10, 0)};  // the service says that it is empty
  EXPECT_TRUE(ToRequest(call, "item").ok());
}

TEST(CallsTest, SpecsOfAMoveHaveOneBase) {
  const MoveCall call{.specs = {{}, {.from_spec = Spec{.preset = "a", .encoder = "b"}}}};
  EXPECT_THAT(std::string(ToRequest(call, "item").status().message()),
              ::testing::StartsWith("item.specs[1].from_spec.preset: more than one base"));
}

TEST(CallsTest, EmptyTensorsCopyNothing) {
  std::vector<float> memory = {1, 2, 3}, dense = {4, 5, 6};
  const std::vector<float> memory_before = memory, dense_before = dense;
  CopyToDense(View(memory, {0, 3, 2}, {24, 8, 1}), reinterpret_cast<std::byte*>(dense.data()));
  CopyFromDense(reinterpret_cast<const std::byte*>(dense.data()),
                MutableView(memory, {0, 3, 2}, {24, 8, 1}));
  EXPECT_EQ(dense, dense_before);
  EXPECT_EQ(memory, memory_before);
}

}  // namespace
}  // namespace phasor::client_internal
