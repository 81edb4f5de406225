// SPDX-License-Identifier: Apache-2.0
// Requests that write FLOAT8 or into pages: sizes, strides and offsets of valid ones, and every
// request that must be refused.
#include "kernels/request/paged_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;
using testing::kInvalid;
using testing::PresetSpec;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr absl::StatusCode kNotBuilt = absl::StatusCode::kUnimplemented;

// Queries of 4 heads, keys of 2 and values of 3; 5 tokens go into 6 pages of 4 slots.
RopeRequest Paged() {
  RopeRequest request;
  request.spec = PresetSpec("rope-half-split");
  request.positions = IntegerRange{0, 1, 5};
  request.tensors = {{Dtype::kBFloat16, {5, 4, 8}, {}}, {Dtype::kBFloat16, {5, 2, 8}, {}}};
  request.outputs.resize(2);
  request.paged_cache = PagedCache{.key_index = 1,
                                   .values = {Dtype::kBFloat16, {5, 3, 8}, {}},
                                   .key_cache = {Dtype::kBFloat16, {6, 4, 2, 8}, {}},
                                   .value_cache = {Dtype::kFloat8E4M3, {6, 4, 3, 8}, {}},
                                   .value_inv_scale = 2.5f,
                                   .slot_mapping = {Dtype::kInt64, {5}, {}}};
  return request;
}

absl::StatusOr<PreparedRope> PreparePaged(const RopeRequest& request) {
  return PrepareRope(request, CompilePlan, "item");
}

// Expects that Paged() is refused after `change`, with an error that begins with item.`start`.
template <typename Change>
void ExpectPagedRefused(absl::StatusCode code, const std::string& start, Change change) {
  RopeRequest request = Paged();
  change(request);
  EXPECT_THAT(PreparePaged(request), StatusIs(code, StartsWith("item." + start)));
}

TEST(PagedCacheTest, KeysAndValuesGoToPages) {
  const auto prepared = PreparePaged(Paged());
  ASSERT_THAT(prepared, IsOk());
  ASSERT_EQ(prepared->tensors.size(), 3u);
  const PreparedRope::Tensor& keys = prepared->tensors[1];
  const PreparedRope::Tensor& values = prepared->tensors[2];
  EXPECT_TRUE(prepared->tensors[0].cache_shape.empty());
  EXPECT_TRUE(keys.rotates);
  EXPECT_FALSE(values.rotates);
  EXPECT_EQ(values.heads, 3);
  EXPECT_EQ(values.input_bytes, 5 * 3 * 8 * 2);
  EXPECT_EQ(keys.output_bytes, 6 * 4 * 2 * 8 * 2);
  EXPECT_EQ(values.output_bytes, 6 * 4 * 3 * 8);
  EXPECT_EQ(values.inv_scale, 2.5f);
  EXPECT_EQ(keys.cache_shape, (std::vector<int64_t>{6, 4, 2, 8}));
  EXPECT_EQ(values.output_dtype, Dtype::kFloat8E4M3);
  EXPECT_EQ(prepared->pages->slots, 24);
  EXPECT_EQ(prepared->pages->slot_mapping_bytes, 40);
}

TEST(PagedCacheTest, SlotsBecomeOffsetsBySlotsAndPagesStrides) {
  RopeRequest request = Paged();
  // Pages of keys and values alternate, heads before slots: [6, 2 of them, 2 heads, 4, 8].
  request.paged_cache->key_cache.strides = {2 * 64, 8, 32, 1};
  request.paged_cache->slot_mapping.dtype = Dtype::kInt32;
  auto prepared = PreparePaged(request);
  ASSERT_THAT(prepared, IsOk());
  const int32_t slots[] = {9, -1, 23, 0, 4};
  ASSERT_THAT(SetSlots(reinterpret_cast<const std::byte*>(slots), "item", *prepared), IsOk());
  EXPECT_THAT(prepared->pages->key_offsets,
              ElementsAre(2 * (2 * 128 + 8), -1, 2 * (5 * 128 + 3 * 8), 0, 2 * 128));
  EXPECT_THAT(prepared->pages->value_offsets, ElementsAre(9 * 24, -1, 23 * 24, 0, 4 * 24));
}

TEST(PagedCacheTest, SlotsAreOfTheCacheAndOfOneToken) {
  auto prepared = PreparePaged(Paged());
  ASSERT_THAT(prepared, IsOk());
  const auto set = [&](std::vector<int64_t> slots) {
    return SetSlots(reinterpret_cast<const std::byte*>(slots.data()), "item", *prepared);
  };
  EXPECT_THAT(set({-1, -1, -1, -1, -1}), IsOk());
  EXPECT_THAT(set({23, 22, 21, 20, 19}), IsOk());
  EXPECT_THAT(set({0, 1, 24, 3, 4}),
              StatusIs(kInvalid,
                       "item.paged_cache.slot_mapping[2]: slot 24; must be in [-1, 24), "
                       "-1 for a token that is not written"));
  EXPECT_THAT(set({0, 1, 2, 3, -2}), StatusIs(kInvalid, StartsWith("item.paged_cache.slot_mapping"
                                                                   "[4]: slot -2")));
  EXPECT_THAT(set({INT64_MIN, 1, 2, 3, 4}),
              StatusIs(kInvalid, StartsWith("item.paged_cache.slot_mapping[0]")));
  EXPECT_THAT(set({INT64_MAX, 1, 2, 3, 4}),
              StatusIs(kInvalid, StartsWith("item.paged_cache.slot_mapping[0]")));
  EXPECT_THAT(set({7, 1, -1, 7, -1}),
              StatusIs(kInvalid,
                       "item.paged_cache.slot_mapping[3]: slot 7 is token 0's; must be of "
                       "one token"));
}

TEST(PagedCacheTest, RefusesWhatDoesNotFit) {
  const auto invalid = [](const std::string& start, auto change) {
    ExpectPagedRefused(kInvalid, start, change);
  };
  invalid("paged_cache.key_index: 2; must be in [0, 2)",
          [](auto& r) { r.paged_cache->key_index = 2; });
  invalid("paged_cache.key_index: -1", [](auto& r) { r.paged_cache->key_index = -1; });
  invalid("tensors[1].output_dtype: set", [](auto& r) { r.outputs[1].dtype = Dtype::kFloat8E4M3; });
  invalid("tensors[1].inv_scale: set for BFLOAT16", [](auto& r) { r.outputs[1].inv_scale = 2.f; });
  invalid("paged_cache.values.shape[0]: 4 tokens",
          [](auto& r) { r.paged_cache->values.shape[0] = 4; });
  invalid("paged_cache.values.shape[2]: 6; must be the spec's head_dim (8)", [](auto& r) {
    r.paged_cache->values.shape[2] = 6;
    r.paged_cache->value_cache.shape[3] = 6;
  });
  invalid("paged_cache.values.shape: 2 dimensions", [](auto& r) {
    r.paged_cache->values.shape = {5, 8};
  });
  invalid("paged_cache.values.dtype: INT32",
          [](auto& r) { r.paged_cache->values.dtype = Dtype::kInt32; });
  invalid("paged_cache.key_cache.shape: 3 dimensions", [](auto& r) {
    r.paged_cache->key_cache.shape = {24, 2, 8};
  });
  invalid("paged_cache.key_cache.shape[1]: 0",
          [](auto& r) { r.paged_cache->key_cache.shape[1] = 0; });
  invalid("paged_cache.key_cache.shape[0]: -6",
          [](auto& r) { r.paged_cache->key_cache.shape[0] = -6; });
  invalid("paged_cache.key_cache.shape[2]: 3 heads",
          [](auto& r) { r.paged_cache->key_cache.shape[2] = 3; });
  invalid("paged_cache.value_cache.shape[3]: 16",
          [](auto& r) { r.paged_cache->value_cache.shape[3] = 16; });
  invalid("paged_cache.value_cache.shape[0]: 7; must be the key cache's (6)",
          [](auto& r) { r.paged_cache->value_cache.shape[0] = 7; });
  invalid("paged_cache.value_cache.shape[1]: 8; must be the key cache's (4)",
          [](auto& r) { r.paged_cache->value_cache.shape[1] = 8; });
  invalid("paged_cache.key_cache.strides[2]: 8 makes elements overlap", [](auto& r) {
    r.paged_cache->key_cache.strides = {64, 8, 8, 1};
  });
  invalid("paged_cache.key_cache.strides[3]: 2; the last must be 1", [](auto& r) {
    r.paged_cache->key_cache.strides = {128, 32, 16, 2};
  });
  invalid("paged_cache.key_cache.dtype: INT32 from BFLOAT16",
          [](auto& r) { r.paged_cache->key_cache.dtype = Dtype::kInt32; });
  invalid("paged_cache.slot_mapping.dtype: FLOAT32",
          [](auto& r) { r.paged_cache->slot_mapping.dtype = Dtype::kFloat32; });
  invalid("paged_cache.slot_mapping.shape: [6]; must be [tokens] = [5]",
          [](auto& r) { r.paged_cache->slot_mapping.shape = {6}; });
  invalid("paged_cache.slot_mapping.shape", [](auto& r) {
    r.paged_cache->slot_mapping.shape = {5, 1};
  });
  invalid("paged_cache.slot_mapping.strides: set",
          [](auto& r) { r.paged_cache->slot_mapping.strides = {2}; });
  invalid("tensors[1].tensor.shape: batch 2", [](auto& r) {
    for (TensorDesc* t : {&r.tensors[0], &r.tensors[1], &r.paged_cache->values}) {
      t->shape.insert(t->shape.begin(), 2);
    }
  });
}

TEST(PagedCacheTest, RefusesWhatIsNotBuilt) {
  ExpectPagedRefused(kNotBuilt,
                     "paged_cache.key_cache.dtype: FLOAT32 from BFLOAT16; must be the input's, "
                     "FLOAT8_E4M3 or FLOAT8_E5M2",
                     [](auto& r) { r.paged_cache->key_cache.dtype = Dtype::kFloat32; });
  ExpectPagedRefused(kNotBuilt, "paged_cache: set for PARITY", [](auto& r) {
    r.spec = testing::PresetSpec("llama-3");
    r.spec.precision = Precision::kParity;
    for (TensorDesc* t : {&r.tensors[0], &r.tensors[1], &r.paged_cache->values}) {
      t->shape[2] = 128;
    }
    r.paged_cache->key_cache.shape[3] = 128;
    r.paged_cache->value_cache.shape[3] = 128;
  });
}

TEST(PagedCacheTest, ScalesAreFiniteAndPositive) {
  for (const float scale : {0.0f, -0.0f, -1.0f, INFINITY, -INFINITY, NAN}) {
    ExpectPagedRefused(kInvalid, "paged_cache.value_inv_scale: ", [&](auto& r) {
      r.paged_cache->value_inv_scale = scale;
    });
    ExpectPagedRefused(kInvalid, "tensors[1].inv_scale: ", [&](auto& r) {
      r.paged_cache->key_cache.dtype = Dtype::kFloat8E5M2;
      r.outputs[1].inv_scale = scale;
    });
    ExpectPagedRefused(kInvalid, "tensors[0].inv_scale: ", [&](auto& r) {
      r.outputs[0] = {Dtype::kFloat8E5M2, scale};
    });
  }
  ExpectPagedRefused(kInvalid,
                     "paged_cache.value_inv_scale: set for BFLOAT16; must be only for FLOAT8",
                     [](auto& r) { r.paged_cache->value_cache.dtype = Dtype::kBFloat16; });
}

TEST(PagedCacheTest, Float8OutputsAreOfHalfTheSize) {
  RopeRequest request = Paged();
  request.paged_cache.reset();
  request.outputs[0] = {Dtype::kFloat8E4M3, 0.5f};
  const auto prepared = PreparePaged(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->tensors[0].output_bytes, 5 * 4 * 8);
  EXPECT_EQ(prepared->tensors[0].y_strides.token, 4 * 8);
  EXPECT_EQ(prepared->tensors[1].output_bytes, 5 * 2 * 8 * 2);
  const PreparedRope slice = SliceTokens(*prepared, 1, 3);
  EXPECT_EQ(slice.tensors[0].output_bytes, 3 * 4 * 8);
  EXPECT_EQ(slice.tensors[0].input_bytes, 3 * 4 * 8 * 2);
  EXPECT_EQ(slice.tensors[0].y_strides.token, 4 * 8);
  request.tensors[0].dtype = Dtype::kFloat32;
  EXPECT_THAT(PreparePaged(request),
              StatusIs(kNotBuilt,
                       "item.tensors[0].output_dtype: FLOAT8_E4M3 from FLOAT32; must be "
                       "the input's"));
  request.outputs[0].dtype = Dtype::kInt32;
  EXPECT_THAT(PreparePaged(request),
              StatusIs(kInvalid, StartsWith("item.tensors[0].output_dtype")));
}

}  // namespace
}  // namespace phasor
