// SPDX-License-Identifier: Apache-2.0
// Resolves the widths of rows and heads, and the contents of each column or lane.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/ladders.h"
#include "kernels/spec/resolution.h"

namespace phasor {
namespace {

absl::Status ResolveArrangement(Resolution& r) {
  r.out.grouping = r.merged.grouping.value_or(AxisGrouping::kAxisMajor);
  const bool component_major = r.out.grouping == AxisGrouping::kComponentMajor;
  if (r.out.family == FrequencyFamily::kPerElement) {
    if (!component_major) return absl::OkStatus();
    return r.Invalid("grouping", "COMPONENT_MAJOR; PER_ELEMENT takes AXIS_MAJOR or SUM");
  }
  if (!r.merged.order.has_value()) return r.Missing("order");
  r.out.order = *r.merged.order;
  if (r.out.order == TrigOrder::kCosOnly) {  // one component, so nothing to arrange
    r.out.arrangement = Arrangement::kConcatenated;
    return absl::OkStatus();
  }
  if (!r.merged.arrangement.has_value()) return r.Missing("arrangement");
  r.out.arrangement = *r.merged.arrangement;
  if (component_major && r.out.arrangement == Arrangement::kInterleaved) {
    return r.Invalid("arrangement", "INTERLEAVED; COMPONENT_MAJOR grouping takes CONCATENATED");
  }
  return absl::OkStatus();
}

absl::Status ResolvePadding(std::string_view field, const std::optional<int64_t>& value,
                            const Resolution& r, int64_t* out) {
  *out = value.value_or(0);
  if (*out >= 0 && *out <= r.out.dim) return absl::OkStatus();
  return r.Invalid(field, *out, " is out of range; must be in [0, ", r.out.dim, "] (dim)");
}

// Splits dim into padding and content. If the content would be odd, takes one column from pad_back.
absl::Status ResolveContent(Resolution& r) {
  PHASOR_RETURN_IF_ERROR(ResolvePadding("pad_front", r.merged.pad_front, r, &r.out.pad_front));
  PHASOR_RETURN_IF_ERROR(ResolvePadding("pad_back", r.merged.pad_back, r, &r.out.pad_back));
  const int64_t content = ContentWidth(r.out);
  const bool odd = content % 2 != 0;
  // PER_ELEMENT has no pairs, so an odd width lacks nothing.
  const bool whole = r.out.family == FrequencyFamily::kPerElement && r.out.pad_back == 0;
  if (content > 0 && (!odd || whole || r.out.order == TrigOrder::kCosOnly)) {
    return absl::OkStatus();
  }
  if (content > 0 && r.merged.odd_dim == OddDim::kSplit) {
    r.out.odd_dim = OddDim::kSplit;
    return absl::OkStatus();
  }
  if (content > 0 && r.out.pad_back > 0) {
    --r.out.pad_back;
    return absl::OkStatus();
  }
  if (content == r.out.dim) {
    return r.Invalid("dim", content, " is odd; must be even",
                     field_use::IsPeriods(r.out) ? "" : " unless pad_back is 1 or odd_dim SPLIT");
  }
  return r.Invalid("dim", r.out.dim, " leaves ", content,
                   " columns beside the padding; must be even and at least 2");
}

absl::Status ResolveRotaryDim(Resolution& r) {
  ResolvedSpec& out = r.out;
  out.rotary_begin = r.merged.rotary_begin.value_or(0);
  if (out.rotary_begin < 0 || out.rotary_begin > out.head_dim - 2) {
    return r.Invalid("rotary_begin", out.rotary_begin, " is out of range; must be in [0, ",
                     out.head_dim - 2, "]");
  }
  if (r.merged.rotary_dim.has_value() && r.merged.partial_rotary_factor.has_value()) {
    return r.Invalid("partial_rotary_factor", "set beside rotary_dim; set one of the two");
  }
  std::string_view field = "rotary_dim";
  out.rotary_dim = r.merged.rotary_dim.value_or(out.head_dim);
  if (const auto& factor = r.merged.partial_rotary_factor; factor.has_value()) {
    field = "partial_rotary_factor";
    if (!(*factor > 0 && *factor <= 1)) return r.Invalid(field, *factor, "; must be in (0, 1]");
    out.rotary_dim = static_cast<int64_t>(static_cast<double>(out.head_dim) * *factor);
  }
  const std::string given =
      field == "rotary_dim" ? StrCat(out.rotary_dim) : StrCat("gives rotary_dim ", out.rotary_dim);
  if (out.rotary_dim % 2 != 0) return r.Invalid(field, given, " is odd; must be even");
  const int64_t room = out.head_dim - out.rotary_begin;
  if (out.rotary_dim < 2 || out.rotary_dim > room) {
    return r.Invalid(field, given, " is out of range; must be in [2, ", room,
                     "] (head_dim - rotary_begin)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ResolveEncoding(Resolution& r) {
  PHASOR_RETURN_IF_ERROR(ResolveArrangement(r));
  PHASOR_RETURN_IF_ERROR(r.Finite("cos_bias", r.merged.cos_bias, &r.out.cos_bias));
  if (!r.merged.dim.has_value()) return r.Missing("dim");
  r.out.dim = *r.merged.dim;
  if (r.out.dim < 1 || r.out.dim > kMaxWidth) {
    return r.Invalid("dim", r.out.dim, " is out of range; must be in [1, ", kMaxWidth, "]");
  }
  return ResolveContent(r);
}

absl::Status ResolveRotary(Resolution& r) {
  if (!r.merged.head_dim.has_value()) return r.Missing("head_dim");
  r.out.head_dim = *r.merged.head_dim;
  if (r.out.head_dim < 2 || r.out.head_dim > kMaxWidth) {
    return r.Invalid("head_dim", r.out.head_dim, " is out of range; must be in [2, ", kMaxWidth,
                     "]");
  }
  PHASOR_RETURN_IF_ERROR(ResolveRotaryDim(r));
  if (!r.merged.pairing.has_value()) return r.Missing("pairing");
  r.out.pairing = *r.merged.pairing;
  r.out.pairing_out = r.merged.pairing_out.value_or(r.out.pairing);
  return absl::OkStatus();
}

}  // namespace phasor
