// SPDX-License-Identifier: Apache-2.0
// Resolves the number of axes and which axis turns which pair.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/ladders.h"
#include "kernels/spec/names.h"
#include "kernels/spec/resolution.h"

namespace phasor {
namespace {

bool IsMrope(AxisRule rule) {
  return rule == AxisRule::kMropeChunked || rule == AxisRule::kMropeInterleaved ||
         rule == AxisRule::kMropeAlternating;
}

// The number of axes, if not given, is the length of the list that the axis_rule reads.
absl::Status ResolveAxisCount(Resolution& r) {
  static const std::vector<int64_t> kNone;
  const bool mrope = IsMrope(r.out.axis_rule);
  const char* const list_name = mrope ? "mrope_section" : "axes_dim";
  const auto& list = mrope ? r.merged.mrope_section : HasBlocks(r.out) ? r.merged.axes_dim : kNone;
  const int64_t listed = static_cast<int64_t>(list.size());
  const int64_t axes = r.merged.axes.value_or(
      listed == 0 ? 1 : static_cast<int>(std::min<int64_t>(listed, kMaxAxes + 1)));
  if (axes < 1 || axes > kMaxAxes) {
    return r.Invalid(
        r.merged.axes.has_value() ? "axes" : list_name,
        axes > kMaxAxes ? StrCat("more than ", kMaxAxes, " axes") : StrCat(axes, " axes"),
        "; must be in [1, ", kMaxAxes, "]");
  }
  if (listed != 0 && listed != axes) {
    return r.Invalid(list_name, listed, " entries; must be as many as axes (", axes, ")");
  }
  r.out.axes = static_cast<int>(axes);
  return absl::OkStatus();
}

// Refuses a list that the axis_rule does not read, unless it comes from the base.
absl::Status RejectOtherRulesLists(const Resolution& r) {
  const AxisRule rule = r.out.axis_rule;
  const auto reject = [&](const char* field) {
    return r.Invalid(field, "has no meaning for axis_rule ", Name(rule), "; must not be set");
  };
  if (!HasBlocks(r.out) && !r.user.axes_dim.empty()) return reject("axes_dim");
  if (!IsMrope(rule) && !r.user.mrope_section.empty()) return reject("mrope_section");
  if (rule != AxisRule::kList && !r.user.axis_of_pair.empty()) return reject("axis_of_pair");
  return absl::OkStatus();
}

// Resolves the width of each axis' block: given, or equal shares. With grouping SUM, every axis has
// the whole width.
absl::Status ResolveAxesDim(Resolution& r) {
  const bool shared = r.out.grouping == AxisGrouping::kSum;
  const bool may_be_odd = r.out.order == TrigOrder::kCosOnly || r.out.odd_dim == OddDim::kSplit ||
                          r.out.family == FrequencyFamily::kPerElement;
  const int64_t width = ContentWidth(r.out);
  const char* const width_field = r.out.kind == SpecKind::kEncoding ? "dim" : "rotary_dim";
  std::vector<int64_t>& axes_dim = r.out.axes_dim = r.merged.axes_dim;
  // A base with equal shares keeps them at another width.
  const bool equal =
      std::adjacent_find(axes_dim.begin(), axes_dim.end(), std::not_equal_to<>()) == axes_dim.end();
  if (r.user.axes_dim.empty() && equal) axes_dim.clear();
  if (axes_dim.empty()) {
    const int64_t share = shared ? width : width / r.out.axes;
    if (!shared && share * r.out.axes != width) {
      return r.Invalid("axes_dim", "not set; must be given since ", width_field, " ", width,
                       " does not split evenly over ", r.out.axes, " axes");
    }
    axes_dim.assign(r.out.axes, share);
  }
  int64_t sum = 0;
  for (size_t a = 0; a < axes_dim.size(); ++a) {
    const int64_t block = axes_dim[a];
    const std::string field = StrCat("axes_dim[", a, "]");
    if (may_be_odd && (block < 1 || block > width)) {
      return r.Invalid(field, block, "; must be in [1, ", width, "]");
    }
    if (!may_be_odd && (block < 2 || block > width || block % 2 != 0)) {
      return r.Invalid(field, block, "; must be even and in [2, ", width, "]");
    }
    if (shared && block != width) {
      return r.Invalid(field, block, "; must be ", width, " for grouping SUM");
    }
    sum += block;
  }
  if (!shared && sum != width) {
    return r.Invalid("axes_dim", "sums to ", sum, "; must sum to ", width, " (", width_field, ")");
  }
  if (r.out.odd_dim == OddDim::kSplit && r.out.axes > 1 && !shared) {
    return r.Invalid("odd_dim", "SPLIT; must be PAD for several axes side by side");
  }
  return absl::OkStatus();
}

// The sections of MROPE_INTERLEAVED as they take effect: axes 1 and 2 have at most every third
// pair, and axis 0 has the rest, whatever its own section says.
void TakeInterleaved(int64_t pairs, std::vector<int64_t>& section) {
  section[1] = std::min(section[1], (pairs + 1) / 3);
  section[2] = std::min(section[2], pairs / 3);
  section[0] = pairs - section[1] - section[2];
}

absl::Status ResolveSections(Resolution& r) {
  const auto& section = r.out.mrope_section = r.merged.mrope_section;
  const int64_t pairs = PairsOf(r.out);
  if (section.empty()) return r.Missing("mrope_section");
  const bool interleaved = r.out.axis_rule == AxisRule::kMropeInterleaved;
  int64_t sum = 0;
  for (size_t i = 0; i < section.size(); ++i) {
    if (section[i] < 0 || section[i] > (interleaved ? kMaxWidth : pairs)) {
      return r.Invalid(StrCat("mrope_section[", i, "]"), section[i], "; must be in [0, ",
                       interleaved ? kMaxWidth : pairs, "]");
    }
    sum += section[i];
  }
  if (sum != pairs && interleaved && section.size() == 3) {
    TakeInterleaved(pairs, r.out.mrope_section);
  } else if (sum != pairs) {
    return r.Invalid("mrope_section", "sums to ", sum, "; must sum to ", pairs,
                     " (rotary_dim / 2)");
  }
  if (r.out.axis_rule == AxisRule::kMropeChunked) return absl::OkStatus();
  if (r.out.axes != 3) {
    return r.Invalid("axes", r.out.axes, "; must be 3 for axis_rule ", Name(r.out.axis_rule));
  }
  if (r.out.axis_rule == AxisRule::kMropeAlternating && section[0] != section[1]) {
    return r.Invalid("mrope_section[1]", section[1], "; must be ", section[0],
                     " as mrope_section[0], with which it alternates");
  }
  return absl::OkStatus();
}

absl::Status ResolveAxisList(Resolution& r) {
  r.out.axis_of_pair = r.merged.axis_of_pair;
  const int64_t pairs = PairsOf(r.out);
  if (static_cast<int64_t>(r.out.axis_of_pair.size()) != pairs) {
    return r.Invalid("axis_of_pair", r.out.axis_of_pair.size(), " values; must be ", pairs);
  }
  for (size_t j = 0; j < r.out.axis_of_pair.size(); ++j) {
    const int axis = r.out.axis_of_pair[j];
    if (axis >= 0 && axis < r.out.axes) continue;
    return r.Invalid(StrCat("axis_of_pair[", j, "]"), axis, "; must be in [0, ", r.out.axes,
                     ") (axes)");
  }
  return absl::OkStatus();
}

// BLOCK_HALF_SPLIT needs blocks. With one block it is HALF_SPLIT.
absl::Status ResolveBlockPairs(const char* field, const Resolution& r, Pairing* pairing) {
  if (*pairing != Pairing::kBlockHalfSplit) return absl::OkStatus();
  if (r.out.axes == 1) *pairing = Pairing::kHalfSplit;
  if (HasBlocks(r.out)) return absl::OkStatus();
  return r.Invalid(field, "BLOCK_HALF_SPLIT, but the axes of axis_rule ", Name(r.out.axis_rule),
                   " have no blocks; must be HALF_SPLIT or INTERLEAVED, or the rule AXIAL");
}

absl::Status CheckEncodingAxes(const Resolution& r) {
  if (field_use::IsPeriods(r.out) && r.out.axes != 1) {
    return r.Invalid("axes", r.out.axes, "; must be 1 for an encoding of family ",
                     Name(r.out.family));
  }
  if (HasBlocks(r.out)) return absl::OkStatus();
  if (r.out.family == FrequencyFamily::kPerElement) {
    return r.Invalid("axis_rule", Name(r.out.axis_rule), "; PER_ELEMENT takes SINGLE or AXIAL");
  }
  if (r.out.grouping != AxisGrouping::kAxisMajor) {
    return r.Invalid("grouping", Name(r.out.grouping), "; must be AXIS_MAJOR for axis_rule ",
                     Name(r.out.axis_rule), ", whose axes have no blocks of their own");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ResolveAxes(Resolution& r) {
  r.out.axis_rule = r.merged.axis_rule.value_or(AxisRule::kAxial);
  PHASOR_RETURN_IF_ERROR(ResolveAxisCount(r));
  if (r.merged.axis_rule == AxisRule::kSingle && r.out.axes != 1) {
    return r.Invalid("axis_rule", "SINGLE; must be another rule for ", r.out.axes, " axes");
  }
  return RejectOtherRulesLists(r);
}

absl::Status ResolveAxisMap(Resolution& r) {
  if (r.out.kind == SpecKind::kEncoding) PHASOR_RETURN_IF_ERROR(CheckEncodingAxes(r));
  if (IsMrope(r.out.axis_rule)) PHASOR_RETURN_IF_ERROR(ResolveSections(r));
  if (r.out.axis_rule == AxisRule::kList) PHASOR_RETURN_IF_ERROR(ResolveAxisList(r));
  if (r.out.axes == 1) {  // one axis turns every pair, so rule and grouping do not matter
    r.out.axis_rule = AxisRule::kSingle;
    r.out.grouping = AxisGrouping::kAxisMajor;
    r.out.mrope_section.clear();
    r.out.axis_of_pair.clear();
  }
  PHASOR_RETURN_IF_ERROR(ResolveBlockPairs("pairing", r, &r.out.pairing));
  PHASOR_RETURN_IF_ERROR(ResolveBlockPairs("pairing_out", r, &r.out.pairing_out));
  if (HasBlocks(r.out)) return ResolveAxesDim(r);
  if (r.out.axis_rule != AxisRule::kFrequencyMajor) return absl::OkStatus();
  const int64_t width = ContentWidth(r.out);
  const int64_t unit = r.out.order == TrigOrder::kCosOnly ? r.out.axes : 2 * r.out.axes;
  if (width % unit != 0) {
    return r.Invalid(r.out.kind == SpecKind::kEncoding ? "dim" : "rotary_dim", width,
                     "; must be a multiple of ", unit, " for FREQUENCY_MAJOR over ", r.out.axes,
                     " axes");
  }
  return absl::OkStatus();
}

}  // namespace phasor
