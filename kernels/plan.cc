// SPDX-License-Identifier: Apache-2.0
// ResolvedSpec -> Plan: ladders of frequencies, where their sines and cosines go, and the tables.
#include "kernels/plan.h"

#include <atomic>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/frequencies.h"
#include "kernels/parity/compile.h"

namespace phasor {
namespace {

constexpr uint64_t kQuarterTurn = uint64_t{1} << 62;

// The frequencies of one axis whose block is `width` columns or lanes wide.
std::optional<std::vector<Frequency>> AxisFrequencies(const ResolvedSpec& spec, int64_t width) {
  const int64_t pairs = width / 2;
  const double count = static_cast<double>(pairs);
  switch (spec.family) {
    case FrequencyFamily::kGeometric: {
      const double denominator = pairs == 1 ? 1 : count - spec.downscale_freq_shift;
      return GeometricFrequencies(spec.rope_theta, denominator, pairs, spec.position_scale);
    }
    case FrequencyFamily::kPerElement:
      return GeometricFrequencies(spec.rope_theta, count, width, spec.position_scale);
    case FrequencyFamily::kPeriods:
      return PeriodFrequencies(spec.min_period, spec.max_period, pairs == 1 ? 1 : count - 1, pairs,
                               spec.position_scale);
    case FrequencyFamily::kPeriodsExclusive:
      return PeriodFrequencies(spec.min_period, spec.max_period, count, pairs, spec.position_scale);
    case FrequencyFamily::kExplicit:
    case FrequencyFamily::kLinear:
    case FrequencyFamily::kLogRange:
      break;  // ResolveSpec refuses them
  }
  return std::nullopt;
}

void AddPair(Plan& plan, Frequency frequency, int axis, uint64_t offset) {
  plan.frequency.push_back(frequency);
  plan.axis.push_back(static_cast<uint8_t>(axis));
  plan.offset.push_back(offset);
}

// Where axis `axis`'s components go. `column` is the sum of the widths of the axes before it.
EncodeBlock MakeBlock(const ResolvedSpec& spec, int axis, int64_t column) {
  const int64_t pairs = spec.axes_dim[axis] / 2;
  EncodeBlock block;
  block.pairs = pairs;
  int64_t first = column;
  int64_t second = column + pairs;
  if (spec.grouping == AxisGrouping::kSum) {
    first = 0;
    second = pairs;
    block.accumulate = axis > 0;
  } else if (spec.grouping == AxisGrouping::kComponentMajor) {
    first = column / 2;
    second = (spec.dim - spec.pad_back) / 2 + column / 2;
  }
  if (spec.family == FrequencyFamily::kPerElement) {
    block.pairs = spec.axes_dim[axis];
    block.sin_begin = first;
    block.cos_begin = -1;
    return block;
  }
  if (spec.arrangement == Arrangement::kInterleaved) {
    second = first + 1;
    block.stride = 2;
  }
  if (spec.order == TrigOrder::kCosSin) std::swap(first, second);
  block.sin_begin = first;
  block.cos_begin = second;
  return block;
}

// Appends the pairs of every axis. False when a frequency is too large.
bool AddAxes(Plan& plan) {
  const ResolvedSpec& spec = plan.spec;
  const bool encoding = spec.kind == SpecKind::kEncoding;
  const bool per_element = spec.family == FrequencyFamily::kPerElement;
  int64_t column = 0;
  std::optional<std::vector<Frequency>> frequencies;
  for (int axis = 0; axis < spec.axes; ++axis) {
    const bool same_ladder = axis > 0 && spec.axes_dim[axis] == spec.axes_dim[axis - 1];
    if (!same_ladder) frequencies = AxisFrequencies(spec, spec.axes_dim[axis]);
    if (!frequencies.has_value()) return false;
    if (encoding && plan.frequency.size() % 2 != 0) AddPair(plan, {}, axis - 1, 0);
    if (encoding) {
      plan.layout.blocks.push_back(MakeBlock(spec, axis, column));
      plan.layout.blocks.back().first_pair = static_cast<int64_t>(plan.frequency.size());
    }
    // An element with an odd index is a cosine: a sine a quarter of a turn ahead.
    for (size_t i = 0; i < frequencies->size(); ++i) {
      AddPair(plan, (*frequencies)[i], axis, per_element && i % 2 == 1 ? kQuarterTurn : 0);
    }
    column += spec.axes_dim[axis];
  }
  return true;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Plan>> CompilePlan(const ResolvedSpec& spec) {
  static std::atomic<uint64_t> next_id{1};
  auto plan = std::make_shared<Plan>();
  plan->spec = spec;
  if (!AddAxes(*plan)) {
    return absl::InvalidArgumentError(
        "spec: a frequency is 2^63 turns per unit position or more, must be less");
  }
  plan->id = next_id.fetch_add(1, std::memory_order_relaxed);
  plan->fingerprint = Fingerprint(spec);
  plan->pairs = static_cast<int64_t>(plan->frequency.size());
  if (spec.kind == SpecKind::kEncoding) {
    plan->layout.width = spec.dim;
    plan->layout.content_end = spec.dim - spec.pad_back;
  }
  plan->table = MakePhaseTable(plan->frequency, plan->axis, plan->offset);
  if (spec.parity.has_value()) plan->parity = parity::Compile(*plan);
  return plan;
}

}  // namespace phasor
