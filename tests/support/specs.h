// SPDX-License-Identifier: Apache-2.0
// Specs for tests, by preset and field.
#ifndef PHASOR_TESTS_SUPPORT_SPECS_H_
#define PHASOR_TESTS_SUPPORT_SPECS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/spec/spec.h"
#include "tests/support/status_matchers.h"

namespace phasor::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Spec PresetSpec(const std::string& name) {
  Spec spec;
  spec.preset = name;
  return spec;
}

inline Spec Encoding(const std::string& preset, int64_t dim) {
  Spec spec = PresetSpec(preset);
  spec.dim = dim;
  return spec;
}

inline Spec Encoding(int64_t dim) { return Encoding("transformer", dim); }
inline Spec Flow(int64_t dim) { return Encoding("flow-periods", dim); }

inline Spec Rotary(const std::string& preset, int64_t head_dim) {
  Spec spec = PresetSpec(preset);
  spec.head_dim = head_dim;
  return spec;
}

inline Spec Rotary(int64_t head_dim) { return Rotary("rope-half-split", head_dim); }

template <typename T>
Spec With(Spec spec, T Spec::*field, std::common_type_t<T> value) {
  spec.*field = std::move(value);
  return spec;
}

inline ResolvedSpec Resolve(const Spec& spec) {
  auto resolved = ResolveSpec(spec);
  EXPECT_THAT(resolved, IsOk());
  return resolved.ok() ? *resolved : ResolvedSpec{};
}

// Specs that between them use every field that the plain ones above leave at its default, no two of
// the same meaning.
inline std::vector<Spec> SpecsOfEveryField() {
  const auto scaled = [](RopeScaling scaling, std::optional<int64_t> length = {}) {
    return With(With(Rotary(8), &Spec::rope_scaling, std::move(scaling)), &Spec::sequence_length,
                length);
  };
  const auto family = [](FrequencyFamily f, double min, double max) {
    Spec spec = With(Rotary(8), &Spec::family, f);
    spec.min_freq = min;
    spec.max_freq = max;
    return spec;
  };
  const auto axes = [](AxisRule rule, int count, std::vector<int64_t> section = {}) {
    Spec spec = With(With(Rotary(24), &Spec::axis_rule, rule), &Spec::axes, count);
    spec.mrope_section = std::move(section);
    return spec;
  };
  Spec heads = With(Rotary(6), &Spec::family, FrequencyFamily::kExplicit);
  heads.inv_freq = {1, 0.5, 0.25, -1, 1e-9, 3};
  heads.frequency_heads = 2;
  Spec dense = axes(AxisRule::kDense, 2);
  dense.head_dim = 4;
  dense.family = FrequencyFamily::kExplicit;
  dense.inv_freq = {1, 2, 3, 4};
  LongRopeScaling phi = {.short_factor = {1, 1, 1, 1}, .long_factor = {1, 2, 3, 4}};
  phi.original_max_position_embeddings = 4096;
  phi.factor = 32;
  return {
      scaled(LinearScaling{2.0}),
      scaled(NtkScaling{.factor = 2.0}),
      scaled(NtkScaling{2.0, true, 4096}, 8192),
      scaled(NtkScaling{2.0, true, 4096}, 8193),
      scaled(MixedNtkScaling{2.0, {}}),
      scaled(MixedNtkScaling{2.0, 0.5}),
      scaled(YarnScaling{4.0, 4096}),
      scaled(YarnScaling{4.0, 4096, 16.0, 2.0, false, {}, 1.0, 0.5, 0.5, 0.9, true, 0.07}),
      scaled(Llama3Scaling{8.0, 1.0, 4.0, 8192}),
      scaled(phi, 1),
      scaled(phi, 5000),
      family(FrequencyFamily::kLinear, 1, 2),
      family(FrequencyFamily::kLogRange, 1, 2),
      With(family(FrequencyFamily::kLogRange, 1, 2), &Spec::frequency_unit, FrequencyUnit::kTurns),
      With(Rotary(8), &Spec::live_pairs, 2),
      With(Rotary(8), &Spec::phase, {0, 0, 0, 0.5}),
      With(Rotary(8), &Spec::xpos, XposScaling{}),
      With(Rotary(8), &Spec::xpos, XposScaling{64.0, 10.0, true}),
      axes(AxisRule::kMropeChunked, 3, {4, 4, 4}),
      axes(AxisRule::kMropeInterleaved, 3, {4, 4, 4}),
      axes(AxisRule::kMropeAlternating, 3, {4, 4, 4}),
      axes(AxisRule::kFrequencyMajor, 3),
      With(axes(AxisRule::kList, 2), &Spec::axis_of_pair, {0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}),
      With(axes(AxisRule::kAxial, 3), &Spec::axes_theta, {10, 20, 30}),
      With(axes(AxisRule::kAxial, 3), &Spec::axes_position_scale, {1, 0.5, -1}),
      heads,
      dense,
      With(Encoding(8), &Spec::pad_front, 2),
      With(Encoding(8), &Spec::pad_back, 2),
      With(Encoding(7), &Spec::odd_dim, OddDim::kSplit),
      With(Encoding(8), &Spec::order, TrigOrder::kCosOnly),
      With(Encoding(8), &Spec::cos_bias, -1),
      With(Encoding(8), &Spec::attention_factor, 0.5),
  };
}

// That resolution answers INVALID_ARGUMENT "item.spec.<start>...".
inline void ExpectInvalid(const Spec& spec, const std::string& start) {
  EXPECT_THAT(
      ResolveSpec(spec, "item.spec"),
      StatusIs(absl::StatusCode::kInvalidArgument, ::testing::StartsWith("item.spec." + start)));
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_SPECS_H_
