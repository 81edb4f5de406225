// SPDX-License-Identifier: Apache-2.0
// Fills a plan's parity tables: frequencies in upstream's steps, scales, phases and types of
// stages.
#include "kernels/plan/parity_compile.h"

#include <algorithm>
#include <numbers>
#include <utility>
#include <vector>

#include "kernels/plan/frequencies.h"
#include "kernels/plan/parity/ggml.h"
#include "kernels/plan/parity/ladder.h"
#include "kernels/plan/parity/rounding.h"
#include "kernels/spec/ladders.h"

namespace phasor::parity {
namespace {

// The type of a stage; nullopt means the model's type.
std::optional<Dtype> DtypeOf(ParityType type) {
  switch (type) {
    case ParityType::kFloat64:
      return Dtype::kFloat64;
    case ParityType::kFloat32:
      return Dtype::kFloat32;
    case ParityType::kFloat16:
      return Dtype::kFloat16;
    case ParityType::kBFloat16:
      return Dtype::kBFloat16;
    case ParityType::kModel:
      return std::nullopt;
  }
  return std::nullopt;
}

Dtype OwnType(ParityType type) { return DtypeOf(type).value_or(Dtype::kFloat32); }

bool IsLadder(FrequencyFamily family) {
  return family == FrequencyFamily::kGeometric || family == FrequencyFamily::kPerElement;
}

// For every pair of the plan in one layer, its index in a layer of the spec; -1 for padding. The
// spec's frequencies are [layers, heads * pairs of a head]. A plan has more pairs: padding makes
// every block or head begin at an even pair.
std::vector<int64_t> Places(const ResolvedSpec& spec) {
  std::vector<int64_t> runs(static_cast<size_t>(spec.frequency_heads), PairsOf(spec));
  if (spec.kind == SpecKind::kEncoding && HasBlocks(spec)) {
    runs.clear();
    for (const Ladder& ladder : LaddersOf(spec)) runs.push_back(ladder.terms);
  }
  std::vector<int64_t> places;
  int64_t next = 0;
  for (const int64_t run : runs) {
    if (places.size() % 2 != 0) places.push_back(-1);
    for (int64_t j = 0; j < run; ++j) places.push_back(next++);
  }
  if (spec.frequency_heads > 1 && places.size() % 2 != 0) places.push_back(-1);
  return places;
}

GeometricLadder GeometricOf(const ResolvedSpec& spec, const Ladder& ladder) {
  GeometricLadder out;
  out.steps = *spec.parity->frequency;
  out.theta = spec.axes_theta.empty() ? spec.rope_theta : spec.axes_theta[ladder.axis];
  out.denominator = ladder.terms == 1 ? 1 : ladder.n - spec.downscale_freq_shift;
  out.count = ladder.terms;
  out.live = ladder.terms;
  out.scaling = IsSet(spec.rope_scaling) ? &spec.rope_scaling : nullptr;
  out.sequence_length = spec.sequence_length.value_or(0);
  return out;
}

std::vector<double> LadderFrequencies(const ResolvedSpec& spec) {
  std::vector<std::vector<double>> ladders;
  for (const Ladder& ladder : LaddersOf(spec)) {
    ladders.push_back(Frequencies(GeometricOf(spec, ladder)));
  }
  std::vector<double> frequencies = JoinLadders(spec, ladders);
  const size_t pairs = static_cast<size_t>(PairsOf(spec));
  const size_t live = static_cast<size_t>(spec.live_pairs.value_or(PairsOf(spec)));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    if (i % pairs >= live) frequencies[i] = 0;
  }
  return frequencies;
}

// Reorders inv_freq from [heads, layers, pairs] to [layers, heads, pairs].
std::vector<double> ListedFrequencies(const ResolvedSpec& spec, Dtype type) {
  const int64_t heads = spec.frequency_heads;
  const int64_t pairs = PairsOf(spec);
  const int64_t layers = static_cast<int64_t>(spec.inv_freq.size()) / (heads * pairs);
  std::vector<double> frequencies;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t i = 0; i < heads * pairs; ++i) {
      const int64_t from = (i / pairs * layers + layer) * pairs + i % pairs;
      frequencies.push_back(Round(type, spec.inv_freq[from]));
    }
  }
  return frequencies;
}

// The factors of each axis' angles: the position scales, times 2 pi if the unit is turns.
std::vector<double> AxisScales(const ResolvedSpec& spec, Dtype type) {
  const double unit = spec.frequency_unit == FrequencyUnit::kTurns ? 2 * std::numbers::pi : 1;
  std::vector<double> scales;
  for (int axis = 0; axis < spec.axes; ++axis) {
    const double own = spec.axes_position_scale.empty() ? 1 : spec.axes_position_scale[axis];
    scales.push_back(Round(type, spec.position_scale * own * unit));
  }
  return scales;
}

void FillScales(const Plan& plan, ParityTables& tables) {
  const std::vector<double> scales = AxisScales(plan.spec, tables.angle);
  if (std::all_of(scales.begin(), scales.end(), [](double s) { return s == 1; })) return;
  for (const uint8_t axis : plan.axis) tables.scale.push_back(scales[axis]);
}

void FillGgml(const Plan& plan, ParityTables& tables) {
  std::vector<std::vector<GgmlPair>> ladders;
  for (const Ladder& ladder : LaddersOf(plan.spec)) {
    GgmlLadder made = GgmlPairs(GeometricOf(plan.spec, ladder));
    tables.ggml_scale = made.scale;
    tables.ggml_mixes = made.mixes;
    ladders.push_back(std::move(made.pairs));
  }
  tables.ggml = JoinLadders(plan.spec, ladders);
}

// Fills in the frequencies, in the order of the plan.
void FillFrequencies(const Plan& plan, ParityTables& tables) {
  const ResolvedSpec& spec = plan.spec;
  const ParityArithmetic& arithmetic = *spec.parity;
  if (arithmetic.frequency == ParityFrequency::kGgml) return FillGgml(plan, tables);
  const bool wide = arithmetic.frequency == ParityFrequency::kFloat64;
  const Dtype type = wide ? Dtype::kFloat64 : Dtype::kFloat32;
  const bool listed = spec.family == FrequencyFamily::kExplicit && !IsSet(spec.rope_scaling);
  if (IsLadder(spec.family) || listed) {
    const std::vector<double> made =
        listed ? ListedFrequencies(spec, type) : LadderFrequencies(spec);
    const std::vector<int64_t> places = Places(spec);
    const size_t layer = static_cast<size_t>(spec.frequency_heads * PairsOf(spec));
    for (size_t begin = 0; begin < made.size(); begin += layer) {
      for (const int64_t place : places) {
        tables.frequency.push_back(place < 0 ? 0 : made[begin + static_cast<size_t>(place)]);
      }
    }
    FillScales(plan, tables);
  } else {
    for (const Frequency& f : plan.frequency) {
      tables.frequency.push_back(Round(type, RadiansPerUnit(f)));
    }
  }
  if (!arithmetic.frequency_storage.has_value()) return;
  const Dtype storage = OwnType(*arithmetic.frequency_storage);
  for (double& f : tables.frequency) f = Round(storage, f);
}

void FillPhases(const Plan& plan, ParityTables& tables) {
  const ResolvedSpec& spec = plan.spec;
  if (spec.phase.empty()) return;
  const double unit = spec.frequency_unit == FrequencyUnit::kTurns ? 2 * std::numbers::pi : 1;
  for (const int64_t place : Places(spec)) {
    const double phase = place < 0 ? 0 : spec.phase[static_cast<size_t>(place)];
    tables.phase.push_back(Round(tables.angle, phase * unit));
  }
}

}  // namespace

ParityTables Compile(const Plan& plan) {
  const ParityArithmetic& arithmetic = *plan.spec.parity;
  ParityTables tables;
  tables.position = OwnType(*arithmetic.position);
  tables.angle = OwnType(*arithmetic.angle);
  tables.table = DtypeOf(*arithmetic.table);
  tables.math = DtypeOf(*arithmetic.math);
  tables.amplitude = Round(tables.angle, plan.amplitude);
  tables.cos_bias = Round(tables.angle, plan.layout.cos_bias);
  FillFrequencies(plan, tables);
  FillPhases(plan, tables);
  if (plan.spec.family == FrequencyFamily::kPerElement) {
    for (const uint64_t offset : plan.offset) tables.cosine.push_back(offset != 0);
  }
  return tables;
}

}  // namespace phasor::parity
