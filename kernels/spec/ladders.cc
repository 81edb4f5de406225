// SPDX-License-Identifier: Apache-2.0
// Computes ladders, pair counts and axes of pairs from the resolved widths and axes of a spec.
#include "kernels/spec/ladders.h"

namespace phasor {
namespace {

// A ladder for `width` columns or lanes.
Ladder LadderOver(const ResolvedSpec& spec, int axis, int64_t width) {
  const double half = static_cast<double>(width) / 2;
  if (spec.family == FrequencyFamily::kPerElement) return {axis, width, half};
  if (spec.kind == SpecKind::kEncoding && spec.order == TrigOrder::kCosOnly) {
    return {axis, width, static_cast<double>(width)};
  }
  return {axis, (width + 1) / 2, half};
}

int ChunkOf(const ResolvedSpec& spec, int64_t j) {
  int axis = 0;
  for (int64_t end = spec.mrope_section[0]; j >= end; end += spec.mrope_section[axis]) ++axis;
  return axis;
}

// The axis of pair j in rules where axes have no blocks of their own.
int AxisOfPair(const ResolvedSpec& spec, int64_t j) {
  const auto& section = spec.mrope_section;
  switch (spec.axis_rule) {
    case AxisRule::kSingle:
    case AxisRule::kAxial:
    case AxisRule::kDense:
      return 0;
    case AxisRule::kMropeChunked:
      return ChunkOf(spec, j);
    case AxisRule::kMropeInterleaved: {
      const int axis = static_cast<int>(j % 3);
      return j < 3 * section[axis] ? axis : 0;
    }
    case AxisRule::kMropeAlternating:
      // The sections are [h, w, t]; the axes are (t, h, w).
      return j < section[0] + section[1] ? 1 + static_cast<int>(j % 2) : 0;
    case AxisRule::kFrequencyMajor:
      return static_cast<int>(j % spec.axes);
    case AxisRule::kList:
      return spec.axis_of_pair[j];
  }
  return 0;
}

}  // namespace

bool HasBlocks(const ResolvedSpec& spec) {
  return spec.axis_rule == AxisRule::kSingle || spec.axis_rule == AxisRule::kAxial;
}

PairBlocks PairBlocksOf(const ResolvedSpec& spec) {
  PairBlocks blocks{};
  for (size_t axis = 0; axis < spec.axes_dim.size() && HasBlocks(spec); ++axis) {
    blocks[axis] = spec.axes_dim[axis] / 2;
  }
  return blocks;
}

int64_t ContentWidth(const ResolvedSpec& spec) {
  return spec.kind == SpecKind::kRotary ? spec.rotary_dim
                                        : spec.dim - spec.pad_front - spec.pad_back;
}

std::vector<Ladder> LaddersOf(const ResolvedSpec& spec) {
  std::vector<Ladder> ladders;
  if (HasBlocks(spec)) {
    for (int axis = 0; axis < spec.axes; ++axis) {
      ladders.push_back(LadderOver(spec, axis, spec.axes_dim[axis]));
    }
    return ladders;
  }
  const Ladder whole = LadderOver(spec, 0, ContentWidth(spec));
  const bool dense = spec.axis_rule == AxisRule::kDense;
  if (!dense && spec.axis_rule != AxisRule::kFrequencyMajor) return {whole};
  const int shares = dense ? 1 : spec.axes;
  for (int axis = 0; axis < spec.axes; ++axis) {
    ladders.push_back({axis, whole.terms / shares, whole.n / shares});
  }
  return ladders;
}

int64_t PairsOf(const ResolvedSpec& spec) {
  const std::vector<Ladder> ladders = LaddersOf(spec);
  if (spec.axis_rule == AxisRule::kDense) return ladders[0].terms;
  int64_t pairs = 0;
  for (const Ladder& ladder : ladders) pairs += ladder.terms;
  return pairs;
}

std::vector<uint8_t> AxesOf(const ResolvedSpec& spec) {
  std::vector<uint8_t> axes;
  const int64_t pairs = PairsOf(spec);
  const auto add = [&](int axis, int64_t count) {
    axes.insert(axes.end(), count, static_cast<uint8_t>(axis));
  };
  if (spec.axis_rule == AxisRule::kDense) {
    for (int axis = 0; axis < spec.axes; ++axis) add(axis, spec.frequency_heads * pairs);
    return axes;
  }
  for (int head = 0; head < spec.frequency_heads; ++head) {
    if (HasBlocks(spec)) {
      for (const Ladder& ladder : LaddersOf(spec)) add(ladder.axis, ladder.terms);
    } else {
      for (int64_t j = 0; j < pairs; ++j) add(AxisOfPair(spec, j), 1);
    }
  }
  return axes;
}

}  // namespace phasor
