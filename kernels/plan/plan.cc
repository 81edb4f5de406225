// SPDX-License-Identifier: Apache-2.0
// Compiles a ResolvedSpec into a Plan: frequencies, the columns of sines and cosines, and the
// tables.
#include "kernels/plan/plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/plan/frequencies.h"
#include "kernels/plan/parity_compile.h"
#include "kernels/spec/ladders.h"
#include "kernels/tensor/positions.h"

namespace phasor {
namespace {

constexpr uint64_t kQuarterTurn = uint64_t{1} << 62;

// A run of pairs that starts at an even pair of the plan: those of one head or one block.
struct Segment {
  int64_t pairs = 0;
  int64_t padded = 0;  // pairs, rounded up so that the next run starts at an even pair
};

std::vector<Segment> SegmentsOf(const ResolvedSpec& spec) {
  std::vector<Segment> segments;
  if (spec.kind == SpecKind::kEncoding && HasBlocks(spec)) {
    for (const Ladder& ladder : LaddersOf(spec)) {
      segments.push_back({ladder.terms, (ladder.terms + 1) / 2 * 2});
    }
    segments.back().padded = segments.back().pairs;
    return segments;
  }
  const int64_t pairs = PairsOf(spec);
  const int64_t padded = spec.frequency_heads > 1 ? (pairs + 1) / 2 * 2 : pairs;
  return std::vector<Segment>(spec.frequency_heads, {pairs, padded});
}

absl::Status TooFast() {
  return Invalid(
      "spec: a frequency or phase is 2^63 turns per unit position or more; must be less");
}

// Fills in frequency, axis and offset, with zeros between segments.
absl::Status AddPairs(const std::vector<Segment>& segments, Plan& plan) {
  const ResolvedSpec& spec = plan.spec;
  const auto frequencies = FrequenciesOf(spec);
  const auto phases = PhasesOf(spec);
  if (!frequencies.has_value() || !phases.has_value()) return TooFast();
  const std::vector<uint8_t> axes = AxesOf(spec);
  const bool per_element = spec.family == FrequencyFamily::kPerElement;
  for (const Segment& segment : segments) plan.pairs += segment.padded;
  int64_t from = 0;
  while (from < static_cast<int64_t>(frequencies->size())) {
    const bool first_layer = from == 0;
    for (const Segment& segment : segments) {
      for (int64_t j = 0; j < segment.padded; ++j) {
        const bool padding = j >= segment.pairs;
        const int64_t i = from + std::min(j, segment.pairs - 1);
        plan.frequency.push_back(padding ? Frequency{} : (*frequencies)[i]);
        plan.axis.push_back(axes[i]);
        if (!first_layer) continue;
        // An odd element is a cosine: a sine a quarter of a turn ahead.
        const uint64_t quarter = per_element && j % 2 == 1 ? kQuarterTurn : 0;
        plan.offset.push_back(padding ? 0 : phases->empty() ? quarter : (*phases)[i]);
      }
      from += segment.pairs;
    }
  }
  return absl::OkStatus();
}

// The columns of a block's first component, then of its second. The block has `width` columns and
// starts `column` columns into the content.
struct Placement {
  int64_t first = 0;
  int64_t second = 0;
  int64_t stride = 1;
};

Placement Place(const ResolvedSpec& spec, int64_t column, int64_t width) {
  const int64_t begin = spec.pad_front;
  if (spec.arrangement == Arrangement::kInterleaved) {
    return {begin + column, begin + column + 1, 2};
  }
  if (spec.grouping == AxisGrouping::kComponentMajor) {
    return {begin + column / 2, begin + ContentWidth(spec) / 2 + column / 2, 1};
  }
  return {begin + column, begin + column + (width + 1) / 2, 1};
}

// Adds one block with one component or with both. Two blocks if the components differ in width.
void AddBlocks(const ResolvedSpec& spec, int64_t column, int64_t width, EncodeBlock block,
               RowLayout& layout) {
  block.sin_begin = block.cos_begin = -1;
  if (spec.family == FrequencyFamily::kPerElement || spec.order == TrigOrder::kCosOnly) {
    const bool sines = spec.family == FrequencyFamily::kPerElement;
    (sines ? block.sin_begin : block.cos_begin) = spec.pad_front + column;
    layout.blocks.push_back(block);
    return;
  }
  const Placement place = Place(spec, column, width);
  const bool sin_first = spec.order == TrigOrder::kSinCos;
  block.stride = place.stride;
  (sin_first ? block.sin_begin : block.cos_begin) = place.first;
  if (width % 2 != 0) {  // OddDim::kSplit
    layout.blocks.push_back(block);
    block.sin_begin = block.cos_begin = -1;
    --block.pairs;
  }
  (sin_first ? block.cos_begin : block.sin_begin) = place.second;
  if (block.pairs > 0) layout.blocks.push_back(block);
}

RowLayout LayoutOf(const ResolvedSpec& spec, const std::vector<Segment>& segments) {
  RowLayout layout;
  layout.width = spec.dim;
  layout.content_begin = spec.pad_front;
  layout.content_end = spec.dim - spec.pad_back;
  layout.cos_bias = spec.cos_bias;
  EncodeBlock block;
  int64_t column = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t width = HasBlocks(spec) ? spec.axes_dim[i] : ContentWidth(spec);
    block.pairs = segments[i].pairs;
    block.accumulate = spec.grouping == AxisGrouping::kSum && i > 0;
    AddBlocks(spec, column, width, block, layout);
    block.first_pair += segments[i].padded;
    if (spec.grouping != AxisGrouping::kSum) column += width;
  }
  return layout;
}

Xpos XposOf(const ResolvedSpec& spec, const std::vector<Segment>& segments) {
  Xpos xpos;
  xpos.inverse = *spec.xpos->inverse;
  PositionFromDouble(*spec.xpos->center, &xpos.center);
  std::vector<uint64_t> rates = XposRates(segments[0].pairs, *spec.xpos->scale_base);
  rates.resize(segments[0].padded);
  for (size_t head = 0; head < segments.size(); ++head) {
    xpos.rate.insert(xpos.rate.end(), rates.begin(), rates.end());
  }
  return xpos;
}

template <typename... T>
int64_t HeapBytes(const std::vector<T>&... vectors) {
  return static_cast<int64_t>(((vectors.capacity() * sizeof(T)) + ... + 0));
}

}  // namespace

int64_t BytesOf(const ResolvedSpec& s) {
  int64_t bytes = static_cast<int64_t>(sizeof(s)) +
                  HeapBytes(s.axes_dim, s.mrope_section, s.axis_of_pair, s.axes_theta, s.inv_freq,
                            s.phase, s.axes_position_scale);
  if (const auto* const scaling = std::get_if<LongRopeScaling>(&s.rope_scaling)) {
    bytes += HeapBytes(scaling->short_factor, scaling->long_factor);
  }
  return bytes;
}

int64_t BytesOf(const Plan& p) {
  int64_t bytes = static_cast<int64_t>(sizeof(p) - sizeof(p.spec) + p.fingerprint.capacity()) +
                  BytesOf(p.spec) + HeapBytes(p.frequency, p.axis, p.offset, p.layout.blocks) +
                  HeapBytes(p.table.fraction, p.table.whole, p.table.offset, p.table.runs);
  if (p.xpos.has_value()) bytes += HeapBytes(p.xpos->rate);
  if (p.parity.has_value()) {
    bytes += HeapBytes(p.parity->frequency, p.parity->scale, p.parity->phase, p.parity->cosine,
                       p.parity->ggml);
  }
  return bytes;
}

absl::StatusOr<double> CheckedAmplitude(const ResolvedSpec& spec) {
  const double amplitude = AmplitudeOf(spec);
  // A larger amplitude would be infinite in float32, and 0 times infinity is NaN.
  if (std::abs(amplitude) <= std::numeric_limits<float>::max()) return amplitude;
  return Invalid("spec: the amplitude is ", amplitude, "; must be a finite float32");
}

absl::StatusOr<std::shared_ptr<const Plan>> CompilePlan(const ResolvedSpec& spec) {
  static std::atomic<uint64_t> next_id{1};
  auto plan = std::make_shared<Plan>();
  plan->spec = spec;
  PHASOR_ASSIGN_OR_RETURN(plan->amplitude, CheckedAmplitude(spec));
  const std::vector<Segment> segments = SegmentsOf(spec);
  PHASOR_RETURN_IF_ERROR(AddPairs(segments, *plan));
  plan->id = next_id.fetch_add(1, std::memory_order_relaxed);
  plan->fingerprint = Fingerprint(spec);
  plan->heads = spec.frequency_heads;
  if (spec.kind == SpecKind::kEncoding) plan->layout = LayoutOf(spec, segments);
  if (spec.xpos.has_value()) plan->xpos = XposOf(spec, segments);
  plan->table = MakePhaseTable(plan->frequency, plan->axis, plan->offset);
  if (spec.parity.has_value()) plan->parity = parity::Compile(*plan);
  return plan;
}

}  // namespace phasor
