// SPDX-License-Identifier: Apache-2.0
// Checks paged caches and slot mappings, and turns slots into byte offsets.
#include "kernels/request/paged_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {
namespace {

// Checks the cache that `tensor` is written to, [pages, page_size, heads, head_dim].
absl::Status PrepareCache(const TensorDesc& cache, std::string_view path,
                          PreparedRope::Tensor& tensor) {
  if (cache.shape.size() != 4) {
    return Invalid(path, ".shape: ", cache.shape.size(),
                   " dimensions; must be [pages, page_size, heads, head_dim]");
  }
  PHASOR_ASSIGN_OR_RETURN(tensor.output_bytes, SpannedBytes(cache, path));
  for (size_t i = 0; i < cache.shape.size(); ++i) {
    if (cache.shape[i] == 0) return Invalid(path, ".shape[", i, "]: 0; must be at least 1");
  }
  if (cache.shape[2] != tensor.heads) {
    return Invalid(path, ".shape[2]: ", cache.shape[2],
                   " heads; must be those of what goes there (", tensor.heads, ")");
  }
  if (cache.shape[3] != tensor.shape.back()) {
    return Invalid(path, ".shape[3]: ", cache.shape[3],
                   "; must be the head_dim of what goes there (", tensor.shape.back(), ")");
  }
  std::vector<int64_t> strides = DenseStrides(cache.shape);
  for (size_t i = 0; i < cache.strides.size(); ++i) {
    if (cache.shape[i] > 1) strides[i] = cache.strides[i];
  }
  const int64_t size = SizeOf(cache.dtype);
  tensor.y_strides = {strides[0] * size, strides[1] * size, strides[2] * size};
  tensor.cache_shape = cache.shape;
  return absl::OkStatus();
}

absl::Status CheckSlotMapping(const TensorDesc& slots, int64_t tokens, std::string_view path) {
  if (slots.dtype != Dtype::kInt32 && slots.dtype != Dtype::kInt64) {
    return Invalid(path, ".dtype: ", Name(slots.dtype), "; must be INT32 or INT64");
  }
  if (slots.shape != std::vector<int64_t>{tokens}) {
    return Invalid(path, ".shape: ", ShapeText(slots.shape), "; must be [tokens] = [", tokens, "]");
  }
  if (!slots.strides.empty())
    return Invalid(path, ".strides: set; must be empty, because slots are dense");
  return absl::OkStatus();
}

// Reads the slots. INVALID_ARGUMENT: one is not in [-1, slots).
absl::StatusOr<std::vector<int64_t>> ReadSlots(const PreparedRope::Pages& pages, int64_t tokens,
                                               const std::byte* data, std::string_view path) {
  std::vector<int64_t> slots(static_cast<size_t>(tokens));
  for (size_t t = 0; t < slots.size(); ++t) {
    if (pages.slot_dtype == Dtype::kInt32) {
      int32_t slot;
      std::memcpy(&slot, data + t * sizeof slot, sizeof slot);
      slots[t] = slot;
    } else {
      std::memcpy(&slots[t], data + t * sizeof(int64_t), sizeof(int64_t));
    }
    if (slots[t] >= -1 && slots[t] < pages.slots) continue;
    return Invalid(path, "[", t, "]: slot ", slots[t], "; must be in [-1, ", pages.slots,
                   "), -1 for a token that is not written");
  }
  return slots;
}

// INVALID_ARGUMENT: two tokens have the same slot.
absl::Status CheckDistinct(const std::vector<int64_t>& slots, std::string_view path) {
  const auto falls = [](int64_t a, int64_t b) { return a >= b; };
  if (std::adjacent_find(slots.begin(), slots.end(), falls) == slots.end()) return absl::OkStatus();
  std::vector<std::pair<int64_t, size_t>> by_slot;
  by_slot.reserve(slots.size());
  for (size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] >= 0) by_slot.emplace_back(slots[t], t);
  }
  std::sort(by_slot.begin(), by_slot.end());
  for (size_t i = 1; i < by_slot.size(); ++i) {
    if (by_slot[i].first != by_slot[i - 1].first) continue;
    return Invalid(path, "[", by_slot[i].second, "]: slot ", by_slot[i].first, " is token ",
                   by_slot[i - 1].second, "'s; must be of one token");
  }
  return absl::OkStatus();
}

std::vector<int64_t> OffsetsOf(const std::vector<int64_t>& slots, int64_t page_size,
                               const RotaryStrides& strides) {
  std::vector<int64_t> offsets;
  offsets.reserve(slots.size());
  for (const int64_t slot : slots) {
    offsets.push_back(
        slot < 0 ? -1 : slot / page_size * strides.batch + slot % page_size * strides.token);
  }
  return offsets;
}

}  // namespace

absl::Status SetOutputType(Dtype dtype, std::optional<float> inv_scale, std::string_view dtype_path,
                           std::string_view scale_path, PreparedRope::Tensor& tensor) {
  const bool float8 = Float8Of(dtype) != Float8::kNone;
  const bool half = tensor.dtype == Dtype::kFloat16 || tensor.dtype == Dtype::kBFloat16;
  if (dtype != tensor.dtype && !(float8 && half)) {
    const std::string message =
        StrCat(dtype_path, ": ", Name(dtype), " from ", Name(tensor.dtype), "; must be ",
               half ? "the input's, FLOAT8_E4M3 or FLOAT8_E5M2" : "the input's");
    if (!float8 && !IsComputeDtype(dtype)) return absl::InvalidArgumentError(message);
    return absl::UnimplementedError(message);
  }
  tensor.output_dtype = dtype;
  if (!inv_scale.has_value()) return absl::OkStatus();
  if (!float8) {
    return Invalid(scale_path, ": set for ", Name(dtype), "; must be only for FLOAT8 outputs");
  }
  if (!std::isfinite(*inv_scale) || *inv_scale <= 0) {
    return Invalid(scale_path, ": ", *inv_scale, "; must be finite and > 0");
  }
  tensor.inv_scale = *inv_scale;
  return absl::OkStatus();
}

absl::Status PreparePages(const RopeRequest& request, std::string_view path, PreparedRope& out) {
  const PagedCache& cache = *request.paged_cache;
  const std::string cache_path = StrCat(path, ".paged_cache");
  const std::string key_path = StrCat(path, ".tensors[", cache.key_index, "]");
  const auto k = static_cast<size_t>(cache.key_index);
  PreparedRope::Tensor& keys = out.tensors[k];
  PreparedRope::Tensor& values = out.tensors.back();
  values.rotates = false;
  if (out.batch != 1) {
    return Invalid(key_path, ".tensor.shape: batch ", out.batch, "; must be 1 with paged_cache");
  }
  const std::string key_cache = StrCat(cache_path, ".key_cache");
  const std::string value_cache = StrCat(cache_path, ".value_cache");
  const auto key_scale = request.outputs.empty() ? std::nullopt : request.outputs[k].inv_scale;
  PHASOR_RETURN_IF_ERROR(SetOutputType(cache.key_cache.dtype, key_scale, key_cache + ".dtype",
                                       key_path + ".inv_scale", keys));
  PHASOR_RETURN_IF_ERROR(SetOutputType(cache.value_cache.dtype, cache.value_inv_scale,
                                       value_cache + ".dtype", cache_path + ".value_inv_scale",
                                       values));
  PHASOR_RETURN_IF_ERROR(PrepareCache(cache.key_cache, key_cache, keys));
  PHASOR_RETURN_IF_ERROR(PrepareCache(cache.value_cache, value_cache, values));
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (values.cache_shape[i] == keys.cache_shape[i]) continue;
    return Invalid(value_cache, ".shape[", i, "]: ", values.cache_shape[i],
                   "; must be the key cache's (", keys.cache_shape[i], ")");
  }
  const std::string slots_path = cache_path + ".slot_mapping";
  PHASOR_RETURN_IF_ERROR(CheckSlotMapping(cache.slot_mapping, out.tokens, slots_path));
  PreparedRope::Pages& pages = out.pages.emplace();
  pages.key_index = k;
  pages.page_size = keys.cache_shape[1];
  pages.slots = keys.cache_shape[0] * keys.cache_shape[1];
  pages.slot_dtype = cache.slot_mapping.dtype;
  pages.slot_mapping_bytes = out.tokens * SizeOf(pages.slot_dtype);
  return absl::OkStatus();
}

absl::Status SetSlots(const std::byte* slot_mapping, std::string_view path,
                      PreparedRope& prepared) {
  PreparedRope::Pages& pages = *prepared.pages;
  const std::string slots_path = StrCat(path, ".paged_cache.slot_mapping");
  PHASOR_ASSIGN_OR_RETURN(const std::vector<int64_t> slots,
                          ReadSlots(pages, prepared.tokens, slot_mapping, slots_path));
  PHASOR_RETURN_IF_ERROR(CheckDistinct(slots, slots_path));
  const auto& tensors = prepared.tensors;
  pages.key_offsets = OffsetsOf(slots, pages.page_size, tensors[pages.key_index].y_strides);
  pages.value_offsets = OffsetsOf(slots, pages.page_size, tensors.back().y_strides);
  return absl::OkStatus();
}

}  // namespace phasor
