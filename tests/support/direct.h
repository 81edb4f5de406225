// SPDX-License-Identifier: Apache-2.0
// Evaluates a plan literally, one element at a time in f64 and without a backend: the meaning of
// its tables.
#ifndef PHASOR_TESTS_SUPPORT_DIRECT_H_
#define PHASOR_TESTS_SUPPORT_DIRECT_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/math/phase.h"
#include "kernels/math/sincos.h"
#include "kernels/plan/plan.h"

namespace phasor::testing {

// Phase of `pair` for a token standing at `at` ([axes]).
inline uint64_t PairPhase(const Plan& plan, int64_t pair, const std::vector<Position>& at) {
  uint64_t phase = plan.offset[pair];
  for (size_t i = pair; i < plan.frequency.size(); i += plan.pairs) {
    phase += PhaseOf(at[plan.axis[i]], plan.frequency[i]);
  }
  return phase;
}

// One row of `layout`. Columns that nothing writes are NaN.
inline std::vector<double> EncodeRow(const Plan& plan, const RowLayout& layout,
                                     const std::vector<Position>& at) {
  std::vector<double> row(layout.width, std::numeric_limits<double>::quiet_NaN());
  for (int64_t i = 0; i < layout.content_begin; ++i) row[i] = 0;
  for (int64_t i = layout.content_end; i < layout.width; ++i) row[i] = 0;
  for (const EncodeBlock& block : layout.blocks) {
    const auto store = [&](int64_t begin, int64_t i, double value) {
      if (begin < 0) return;
      double& column = row[begin + i * block.stride];
      column = block.accumulate ? column + value : value;
    };
    for (int64_t i = 0; i < block.pairs; ++i) {
      const auto [sin, cos] = SinCos64(PairPhase(plan, block.first_pair + i, at));
      const double a = plan.amplitude;
      store(block.sin_begin, i, block.negate_sin ? -a * sin : a * sin);
      store(block.cos_begin, i, a * cos + layout.cos_bias);
    }
  }
  return row;
}
inline std::vector<double> EncodeRow(const Plan& plan, const std::vector<Position>& at) {
  return EncodeRow(plan, plan.layout, at);
}

// The lane of component 0 or 1 of a pair.
inline int64_t LaneOf(const ResolvedSpec& spec, Pairing pairing, int64_t pair, int component) {
  int64_t begin = spec.rotary_begin, pairs = spec.rotary_dim / 2;
  if (pairing == Pairing::kInterleaved) return begin + 2 * pair + component;
  for (size_t axis = 0; pairing == Pairing::kBlockHalfSplit; ++axis) {
    pairs = spec.axes_dim[axis] / 2;
    if (pair < pairs) break;
    pair -= pairs;
    begin += spec.axes_dim[axis];
  }
  return begin + pair + component * pairs;
}

// One head of a rotary embedding.
inline std::vector<double> RotateHead(const Plan& plan, const std::vector<Position>& at,
                                      const std::vector<double>& x, bool inverse = false) {
  const ResolvedSpec& spec = plan.spec;
  const auto lane = [&](Pairing pairing, int64_t pair, int component) {
    return LaneOf(spec, pairing, pair, component);
  };
  std::vector<double> y = x;
  for (int64_t pair = 0; pair < spec.rotary_dim / 2; ++pair) {
    const uint64_t phase = PairPhase(plan, pair, at);
    const auto [s, c] = SinCos64(inverse ? -phase : phase);
    const double a = inverse ? 1 / plan.amplitude : plan.amplitude;
    const double x1 = x[lane(spec.pairing, pair, 0)];
    const double x2 = x[lane(spec.pairing, pair, 1)];
    y[lane(spec.pairing_out, pair, 0)] = a * (x1 * c - x2 * s);
    y[lane(spec.pairing_out, pair, 1)] = a * (x2 * c + x1 * s);
  }
  return y;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_DIRECT_H_
