// SPDX-License-Identifier: Apache-2.0
// A plan read literally, one element at a time in f64 and without a backend: what its tables mean.
#ifndef PHASOR_TESTS_SUPPORT_DIRECT_H_
#define PHASOR_TESTS_SUPPORT_DIRECT_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/phase.h"
#include "kernels/plan.h"
#include "kernels/sincos.h"

namespace phasor::testing {

// Phase of `pair` for a token standing at `at` ([axes]).
inline uint64_t PairPhase(const Plan& plan, int64_t pair, const std::vector<Position>& at) {
  return PhaseOf(at[plan.axis[pair]], plan.frequency[pair]) + plan.offset[pair];
}

// One row of an encoding. Columns that no block writes are NaN.
inline std::vector<double> EncodeRow(const Plan& plan, const std::vector<Position>& at) {
  std::vector<double> row(plan.spec.dim, std::numeric_limits<double>::quiet_NaN());
  for (int64_t i = plan.zero_begin; i < plan.spec.dim; ++i) row[i] = 0;
  for (const EncodeBlock& block : plan.blocks) {
    const auto store = [&](int64_t column, double value) {
      row[column] = block.accumulate ? row[column] + value : value;
    };
    for (int64_t i = 0; i < block.pairs; ++i) {
      const auto [sin, cos] = SinCos64(PairPhase(plan, block.first_pair + i, at));
      store(block.sin_begin + i * block.stride, sin);
      if (block.cos_begin >= 0) store(block.cos_begin + i * block.stride, cos);
    }
  }
  return row;
}

// One head of a rotary embedding.
inline std::vector<double> RotateHead(const Plan& plan, const std::vector<Position>& at,
                                      const std::vector<double>& x, bool inverse = false) {
  const ResolvedSpec& spec = plan.spec;
  const auto lane = [&](Pairing pairing, int64_t pair, int component) {
    return spec.rotary_begin + (pairing == Pairing::kInterleaved ? 2 * pair + component
                                                                 : pair + component * plan.pairs);
  };
  std::vector<double> y = x;
  for (int64_t pair = 0; pair < plan.pairs; ++pair) {
    const uint64_t phase = PairPhase(plan, pair, at);
    const auto [s, c] = SinCos64(inverse ? -phase : phase);
    const double x1 = x[lane(spec.pairing, pair, 0)];
    const double x2 = x[lane(spec.pairing, pair, 1)];
    y[lane(spec.pairing_out, pair, 0)] = spec.attention_factor * (x1 * c - x2 * s);
    y[lane(spec.pairing_out, pair, 1)] = spec.attention_factor * (x2 * c + x1 * s);
  }
  return y;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_DIRECT_H_
