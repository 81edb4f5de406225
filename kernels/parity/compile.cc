// SPDX-License-Identifier: Apache-2.0
// See compile.h.
#include "kernels/parity/compile.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/frequencies.h"
#include "kernels/parity/ggml.h"
#include "kernels/parity/ladder.h"
#include "kernels/parity/rounding.h"

namespace phasor::parity {
namespace {

// Nothing: the model's type.
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

// Whether every axis has a ladder of its own; else one ladder runs over all pairs.
bool LaddersRestart(const ResolvedSpec& spec) {
  return spec.kind == SpecKind::kEncoding || spec.axis_rule == AxisRule::kAxial;
}

// The place of every pair in its ladder.
std::vector<int64_t> Places(const Plan& plan) {
  std::vector<int64_t> places(static_cast<size_t>(plan.pairs));
  std::array<int64_t, kMaxAxes> next = {};
  const bool restart = LaddersRestart(plan.spec);
  for (int64_t j = 0; j < plan.pairs; ++j) places[j] = restart ? next[plan.axis[j]]++ : j;
  return places;
}

GeometricLadder LadderOf(const ResolvedSpec& spec, int axis) {
  const int64_t width = LaddersRestart(spec) ? spec.axes_dim[axis] : spec.rotary_dim;
  const bool per_element = spec.family == FrequencyFamily::kPerElement;
  GeometricLadder ladder;
  ladder.steps = *spec.parity->frequency;
  ladder.theta = spec.rope_theta;
  ladder.count = per_element ? width : width / 2;
  ladder.live = ladder.count;
  const double half = static_cast<double>(width) / 2;
  ladder.denominator = half == 1 ? 1 : half - spec.downscale_freq_shift;
  return ladder;
}

// Per axis, what every pair picks its number from. Pairs that only pad a block get 0.
void FillLadders(const Plan& plan, ParityTables& tables) {
  std::vector<std::vector<double>> ladders;
  for (int axis = 0; axis < plan.spec.axes; ++axis) {
    ladders.push_back(Frequencies(LadderOf(plan.spec, axis)));
  }
  const std::vector<int64_t> places = Places(plan);
  tables.frequency.assign(static_cast<size_t>(plan.pairs), 0);
  for (int64_t j = 0; j < plan.pairs; ++j) {
    const std::vector<double>& ladder = ladders[plan.axis[j]];
    if (places[j] < static_cast<int64_t>(ladder.size())) tables.frequency[j] = ladder[places[j]];
  }
}

void FillGgml(const Plan& plan, ParityTables& tables) {
  std::vector<GgmlLadder> ladders;
  for (int axis = 0; axis < plan.spec.axes; ++axis) {
    ladders.push_back(GgmlPairs(LadderOf(plan.spec, axis)));
  }
  const std::vector<int64_t> places = Places(plan);
  for (int64_t j = 0; j < plan.pairs; ++j) {
    tables.ggml.push_back(ladders[plan.axis[j]].pairs[places[j]]);
  }
  tables.ggml_scale = ladders[0].scale;
  tables.ggml_mixes = ladders[0].mixes;
}

void FillExact(const Plan& plan, Dtype type, ParityTables& tables) {
  for (const Frequency& f : plan.frequency) {
    tables.frequency.push_back(Round(type, RadiansPerUnit(f)));
  }
}

void FillFrequencies(const Plan& plan, ParityTables& tables) {
  const ParityArithmetic& arithmetic = *plan.spec.parity;
  if (arithmetic.frequency == ParityFrequency::kGgml) return FillGgml(plan, tables);
  const bool wide = arithmetic.frequency == ParityFrequency::kFloat64;
  if (IsLadder(plan.spec.family)) {
    FillLadders(plan, tables);
    const double scale = Round(tables.angle, plan.spec.position_scale);
    if (scale != 1) tables.scale.assign(tables.frequency.size(), scale);
  } else {
    FillExact(plan, wide ? Dtype::kFloat64 : Dtype::kFloat32, tables);
  }
  if (!arithmetic.frequency_storage.has_value()) return;
  const Dtype storage = OwnType(*arithmetic.frequency_storage);
  for (double& f : tables.frequency) f = Round(storage, f);
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
  if (plan.spec.family == FrequencyFamily::kPerElement) {
    for (const uint64_t offset : plan.offset) tables.cosine.push_back(offset != 0);
  }
  return tables;
}

}  // namespace phasor::parity
