// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/key_layouts.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/bounded.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/move_keys.h"

namespace phasor {
namespace {

constexpr NamedKeyLayout kLayouts[] = {
    {.name = "vllm-lbnhc", .order = "BNHP", .users = "vLLM 0.26 and later (NHD), LMCache 11, 13"},
    {.name = "vllm-lbhnc", .order = "BHNP", .users = "vLLM 0.26 and later (HND), LMCache 10, 12"},
    {.name = "vllm-lhbnc", .order = "LHBNP", .users = "vLLM 0.26 and later"},
    {.name = "vllm-blnhc", .order = "BLNHP", .users = "vLLM 0.26 and later"},
    {.name = "vllm-blhnc", .order = "BLHNP", .users = "vLLM 0.26 and later"},
    {.name = "vllm-bhlnc", .order = "BHLNP", .users = "vLLM 0.26 and later"},
    {.name = "vllm-per-token-head",
     .order = "BNHS",
     .users = "vLLM int8 and fp8_per_token_head (LBNHC)"},
    {.name = "vllm-per-token-head-hnd",
     .order = "BHNS",
     .users = "vLLM int8 and fp8_per_token_head (LBHNC)"},
    {.name = "vllm-cpu-vec",
     .order = "BH2DN",
     .values = "BH2ND",
     .users = "vLLM on CPUs without AMX"},
    {.name = "vllm-rocm", .order = "2BHXNx", .values = "-", .users = "vLLM on ROCm (LHBNC)"},
    {.name = "vllm-rocm-lbhnc", .order = "B2HXNx", .values = "-", .users = "vLLM on ROCm (LBHNC)"},
    {.name = "vllm-paged-x",
     .order = "BHXNx",
     .users = "vLLM PagedAttention, AITER SHUFFLE, SGLang vectorized_5d, TGI"},
    {.name = "vllm-flash", .order = "2BNHD", .users = "vLLM before 0.26, LMCache 1"},
    {.name = "vllm-flash-hnd", .order = "2BHND", .users = "vLLM before 0.26, LMCache 6, 15"},
    {.name = "vllm-cross-layer", .order = "BL2NHD", .users = "vLLM before 0.26, LMCache 0"},
    {.name = "flashinfer-nhd", .order = "B2NHD", .users = "FlashInfer, LMCache 2"},
    {.name = "flashinfer-hnd", .order = "B2HND", .users = "FlashInfer, LMCache 7"},
    {.name = "nhd",
     .order = "BNHD",
     .users = "keys alone: SGLang, FlashInfer tuples, TGI flash, exllamav3, LMCache 4, 9, 16, 18"},
    {.name = "hnd",
     .order = "BHND",
     .users = "keys alone: SGLang HND, OpenVINO on CPUs, TGI ipex, transformers, MLX"},
    {.name = "trtllm", .order = "BL2HND", .users = "TensorRT-LLM, LMCache 8"},
    {.name = "max", .order = "B2LNHD", .users = "MAX"},
    {.name = "lmcache-2ltd", .order = "2LBNHD", .users = "LMCache chunks KV_2LTD"},
    {.name = "lmcache-t2d", .order = "BN2HD", .users = "LMCache chunks KV_T2D"},
    {.name = "lmcache-2td", .order = "2BNHD", .users = "LMCache chunks KV_2TD"},
    {.name = "llamacpp", .order = "BNHD", .users = "llama.cpp; a page is a stream of cells"},
    {.name = "mla-576",
     .order = "BNW",
     .row = 576,
     .lanes_offset = 512,
     .row_in_elements = true,
     .users = "DeepSeek V2 and V3: vLLM, SGLang; LMCache 3, 5, KV_MLA_FMT"},
    {.name = "fp8-ds-mla",
     .order = "BNW",
     .row = 656,
     .lanes_offset = 528,
     .code = KeyCode::kBFloat16,
     .users = "vLLM, SGLang: FLOAT8 content, BFLOAT16 rotary lanes"},
    {.name = "nvfp4-ds-mla",
     .order = "BNW",
     .row = 352,
     .lanes_offset = 256,
     .code = KeyCode::kFloat8E4M3,
     .users = "vLLM: FP4 content, FLOAT8 rotary lanes without a scale, scales of the content"},
    {.name = "dsv4",
     .order = "BNW",
     .row = 576,
     .lanes_offset = 448,
     .page_row = 584,
     .page_round = 576,
     .code = KeyCode::kBFloat16,
     .users = "vLLM DeepSeek V4: rows of a page, then their scales"},
};

constexpr int64_t kMaxLayoutExtent = int64_t{1} << 40;
constexpr int64_t kMaxHeadDim = 1 << 16;
constexpr int64_t kMaxLayoutBytes = int64_t{1} << 50;

// Bytes of a row, or of its beginning, from the size that the name gives.
int64_t BytesOfRow(const NamedKeyLayout& named, KeyCode code, int64_t size) {
  return named.row_in_elements ? size / UnitLanes(code) * UnitBytes(code) : size;
}

// Goes through the dimensions from the innermost out. Distances that are set move what lies outside
// them: a tensor with gaps between its pages has its values and its other layers behind all gaps.
// Returns the bytes of the whole.
int64_t ApplyOrder(std::string_view order, const KeyLayout& layout, const NamedKeyLayout& named,
                   KeyForm* form, int64_t* values_offset, int64_t* layer_bytes) {
  const int64_t unit = UnitBytes(form->code);
  const int64_t units = form->head_dim / UnitLanes(form->code);
  int64_t bytes = unit;
  form->group_lanes = form->head_dim;
  form->lane_bytes = unit;
  // The distance of a dimension: the one that is set, else the bytes of what lies inside. It may be
  // shorter than those: then other dimensions lie between.
  const auto repeat = [&](std::optional<int64_t> set, int64_t extent) {
    const int64_t distance = set.value_or(bytes);
    bytes = std::max(bytes, BoundedProduct(std::max<int64_t>(distance, 0), extent));
    return distance;
  };
  for (auto letter = order.rbegin(); letter != order.rend(); ++letter) {
    switch (*letter) {
      case 'D':
        form->lane_bytes = repeat(layout.lane_bytes, units);
        break;
      case 'P':
        *values_offset = BoundedProduct(bytes, units);
        bytes = BoundedProduct(bytes, 2 * units);
        break;
      case 'S':
        *values_offset = BoundedSum(BoundedProduct(bytes, units), 4);
        bytes = BoundedProduct(2, *values_offset);
        break;
      case 'x':
        form->group_lanes = 16 / unit;
        bytes = 16;
        break;
      case 'X':
        form->group_bytes = bytes;
        bytes = BoundedProduct(bytes, form->head_dim / form->group_lanes);
        break;
      case 'W':
        bytes = BytesOfRow(named, form->code, named.row);
        break;
      case '2':
        *values_offset = bytes;
        bytes = BoundedProduct(bytes, 2);
        break;
      case 'H':
        form->head_bytes = repeat(layout.head_bytes, layout.heads);
        break;
      case 'N':
        form->slot_bytes = repeat(layout.slot_bytes, layout.page_size);
        if (named.page_row == 0) break;
        bytes = BoundedProduct(layout.page_size, named.page_row) + named.page_round - 1;
        bytes -= bytes % named.page_round;
        break;
      case 'B':
        form->page_bytes = repeat(layout.page_bytes, layout.pages);
        break;
      case 'L':
        *layer_bytes = bytes;
        bytes = BoundedProduct(bytes, layout.layers);
        break;
    }
  }
  if (order.find('L') == std::string_view::npos) *layer_bytes = bytes;
  return bytes;
}

absl::Status CheckSizes(const KeyLayout& layout, std::string_view path) {
  const std::pair<std::string_view, int64_t> extents[] = {{"pages", layout.pages},
                                                          {"page_size", layout.page_size},
                                                          {"heads", layout.heads},
                                                          {"layers", layout.layers}};
  for (const auto& [field, value] : extents) {
    if (value >= 1 && value <= kMaxLayoutExtent) continue;
    return Invalid(path, ".", field, ": ", value, "; must be in [1, 2^40]");
  }
  const int64_t unit = UnitLanes(layout.code);
  if (layout.head_dim < 2 || layout.head_dim > kMaxHeadDim) {
    return Invalid(path, ".head_dim: ", layout.head_dim, "; must be in [2, ", kMaxHeadDim, "]");
  }
  if (layout.head_dim % unit != 0) {
    return Invalid(path, ".head_dim: ", layout.head_dim, "; must be a multiple of ", unit, " for ",
                   Name(layout.code));
  }
  const int64_t h = layout.hadamard;
  if (h != 0 && (h < 2 || (h & (h - 1)) != 0 || layout.head_dim % h != 0)) {
    return Invalid(path, ".hadamard: ", h, "; must be 0 or a power of two that divides head_dim (",
                   layout.head_dim, ")");
  }
  return absl::OkStatus();
}

// What the code must have: lanes side by side, scales.
absl::Status CheckCode(const KeyLayout& layout, const NamedKeyLayout& named, const KeyForm& form,
                       std::string_view path) {
  const std::string_view code = Name(form.code);
  const bool byte_code = UnitBytes(form.code) == 1;
  if (form.code != named.code.value_or(form.code)) {
    return Invalid(path, ".code: ", code, "; must be ", Name(*named.code), " for ", named.name,
                   ", whose rotary lanes have a code of their own");
  }
  if (IsBlockCode(form.code) && !form.dense()) {
    return Invalid(path, ".code: ", code, " where lanes are not side by side; must be dense");
  }
  if (form.code == KeyCode::kInt8 && !form.scaled_rows) {
    return Invalid(path, ".scales: not set; must be given for INT8");
  }
  if (form.scaled_rows && !byte_code) {
    const bool inside = named.order.find('S') != std::string_view::npos;
    return Invalid(path, inside ? ".code: " : ".scales: set for ", code,
                   "; must be only with FLOAT8 and INT8");
  }
  if (!layout.scale.has_value()) return absl::OkStatus();
  if (!byte_code || form.scaled_rows) {
    return Invalid(path, ".scale: set for ", code, form.scaled_rows ? " with scales" : "",
                   "; must be only for FLOAT8 without scales");
  }
  if (!std::isfinite(*layout.scale) || *layout.scale <= 0) {
    return Invalid(path, ".scale: ", *layout.scale, "; must be finite and > 0");
  }
  return absl::OkStatus();
}

absl::Status ApplyDistances(const KeyLayout& layout, std::string_view path, KeyForm* form) {
  const std::tuple<std::string_view, std::optional<int64_t>, int64_t*> distances[] = {
      {"page_bytes", layout.page_bytes, &form->page_bytes},
      {"slot_bytes", layout.slot_bytes, &form->slot_bytes},
      {"head_bytes", layout.head_bytes, &form->head_bytes},
      {"lane_bytes", layout.lane_bytes, &form->lane_bytes},
      {"group_lanes", layout.group_lanes, &form->group_lanes},
      {"group_bytes", layout.group_bytes, &form->group_bytes}};
  for (const auto& [field, value, target] : distances) {
    if (!value.has_value()) continue;
    if (*value < 1 || *value > kMaxLayoutBytes) {
      return Invalid(path, ".", field, ": ", *value, "; must be in [1, 2^50]");
    }
    *target = *value;
  }
  if (form->head_dim % form->group_lanes != 0 && form->group_lanes < form->head_dim) {
    return Invalid(path, ".group_lanes: ", form->group_lanes, "; must divide head_dim (",
                   form->head_dim, ")");
  }
  if (form->group_lanes < form->head_dim && form->group_bytes == 0) {
    return Invalid(path, ".group_bytes: not set; must be given with group_lanes");
  }
  return absl::OkStatus();
}

// Sets the bytes around the lanes. `row` and `offset`: of the name, 0 if it has none.
absl::Status ApplyRow(const KeyLayout& layout, int64_t row, int64_t offset, std::string_view path,
                      KeyForm* form) {
  const int64_t lanes = form->lanes_bytes();
  offset = layout.lanes_offset.value_or(offset);
  if (offset < 0 || offset > kMaxLayoutBytes) {
    return Invalid(path, ".lanes_offset: ", offset, "; must be in [0, 2^50]");
  }
  row = layout.row_bytes.value_or(row == 0 ? offset + lanes : row);
  if (!form->dense()) {
    if (layout.row_bytes.has_value() || offset != 0) {
      return Invalid(path, ".row_bytes: set where lanes are not side by side; must be unset");
    }
    form->bytes_from = lanes;
    return absl::OkStatus();
  }
  if (row < offset + lanes || row > kMaxLayoutBytes) {
    return Invalid(path, ".row_bytes: ", row, "; must hold ", lanes, " bytes of lanes from byte ",
                   offset, " on");
  }
  form->bytes_before = offset;
  form->bytes_from = row - offset;
  return absl::OkStatus();
}

absl::Status ApplyScales(const KeyLayout& layout, bool inline_scales, std::string_view path,
                         KeyForm* form) {
  form->scale = layout.scale.value_or(1.0f);
  form->hadamard = layout.hadamard;
  if (inline_scales) {
    form->scaled_rows = true;
    form->scales = {form->lanes_bytes(), form->page_bytes, form->slot_bytes, form->head_bytes};
    form->bytes_from = form->lanes_bytes() + 4;
  }
  if (!layout.scales.has_value()) return absl::OkStatus();
  form->scaled_rows = true;
  form->scales = *layout.scales;
  for (const int64_t value :
       {form->scales.page_bytes, form->scales.slot_bytes, form->scales.head_bytes}) {
    if (value >= 0 && value <= kMaxLayoutBytes) continue;
    return Invalid(path, ".scales: a distance of ", value, " bytes; must be in [0, 2^50]");
  }
  if (std::abs(form->scales.offset) > kMaxLayoutBytes) {
    return Invalid(path, ".scales.offset: ", form->scales.offset, "; must be in [-2^50, 2^50]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const NamedKeyLayout> NamedKeyLayouts() { return kLayouts; }

absl::StatusOr<NamedKeyLayout> FindKeyLayout(std::string_view name, std::string_view path) {
  if (name.empty()) return NamedKeyLayout{.name = "", .order = "BNHD", .values = "-"};
  for (const NamedKeyLayout& named : kLayouts) {
    if (named.name == name) return named;
  }
  std::vector<std::string> names;
  for (const NamedKeyLayout& named : kLayouts) names.emplace_back(named.name);
  return Invalid(path, ": unknown '", Shown(name), "'", DidYouMean(name, names),
                 " must be a name in docs/move-keys.md, or empty");
}

absl::StatusOr<ResolvedKeyLayout> ResolveKeyLayout(const KeyLayout& layout, std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const NamedKeyLayout named,
                          FindKeyLayout(layout.name, StrCat(path, ".name")));
  PHASOR_RETURN_IF_ERROR(CheckSizes(layout, path));
  ResolvedKeyLayout out;
  KeyForm& form = out.keys;
  form.code = layout.code;
  form.pages = layout.pages;
  form.page_size = layout.page_size;
  form.heads = layout.heads;
  form.head_dim = layout.head_dim;
  const bool one_row = named.order.find('W') != std::string_view::npos;
  if (one_row && layout.heads != 1) {
    return Invalid(path, ".heads: ", layout.heads, "; must be 1 for ", named.name);
  }
  if (named.order.find('x') != std::string_view::npos &&
      (IsBlockCode(form.code) || layout.head_dim % (16 / UnitBytes(form.code)) != 0)) {
    return Invalid(path, ".head_dim: ", layout.head_dim, " lanes of ", Name(form.code),
                   "; must fill groups of 16 bytes for ", named.name);
  }
  int64_t values_offset = -1;
  const int64_t bytes =
      ApplyOrder(named.order, layout, named, &form, &values_offset, &out.layer_bytes);
  if (bytes >= kMaxLayoutBytes) {
    return Invalid(path, ": ", "2^50 bytes or more; must be less");
  }
  PHASOR_RETURN_IF_ERROR(ApplyDistances(layout, path, &form));
  PHASOR_RETURN_IF_ERROR(ApplyRow(layout, BytesOfRow(named, form.code, named.row),
                                  BytesOfRow(named, form.code, named.lanes_offset), path, &form));
  const bool inline_scales = named.order.find('S') != std::string_view::npos;
  PHASOR_RETURN_IF_ERROR(ApplyScales(layout, inline_scales, path, &form));
  PHASOR_RETURN_IF_ERROR(CheckCode(layout, named, form, path));
  out.keys_offset = form.bytes_before;
  out.latent = one_row;
  if (values_offset < 0 || named.values == "-") return out;
  // Values have the distances and scales of the keys, but for lanes in another order.
  KeyForm values = form;
  if (!named.values.empty()) {
    int64_t unused = 0;
    KeyLayout dense = layout;
    dense.slot_bytes = dense.head_bytes = dense.lane_bytes = std::nullopt;
    ApplyOrder(named.values, dense, named, &values, &unused, &unused);
    values.page_bytes = form.page_bytes;
    values.bytes_from = values.lanes_bytes();
  }
  out.values = values;
  out.values_offset = values_offset;
  return out;
}

}  // namespace phasor
