// SPDX-License-Identifier: Apache-2.0
// What a plan has beside its exact tables when its spec asks for an upstream's arithmetic.
// Threads: immutable once made; share freely.
#ifndef PHASOR_KERNELS_PLAN_PARITY_TABLES_H_
#define PHASOR_KERNELS_PLAN_PARITY_TABLES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/math/phase.h"
#include "kernels/math/sincos.h"

namespace phasor {

// ggml's recurrence: theta, a position at `restart`, is multiplied by `step` after every pair.
struct GgmlPair {
  bool restart = false;
  double step = 1;    // theta_scale
  double factor = 1;  // freq_factors
  double mix = 0;     // share of the unscaled angle
};

// Numbers are values of the types that they are rounded to. Pairs are the plan's.
struct ParityTables {
  Dtype position = Dtype::kFloat32;  // positions are rounded to it
  Dtype angle = Dtype::kFloat32;     // type of products, sums, sines, cosines and the amplitude
  std::optional<Dtype> table;        // type of the finished sines and cosines; not set: the model's
  std::optional<Dtype> math;         // type of the rotation; not set: the model's
  std::vector<double> frequency;     // [layers, pairs]; empty: ggml
  std::vector<double> scale;         // [layers, pairs] multiplies the angle; empty: ones
  std::vector<double> phase;         // [pairs] added to the angle; empty: zeros
  std::vector<uint8_t> cosine;       // [pairs] 1: a cosine stands for the sine; empty: zeros
  double amplitude = 1;
  double cos_bias = 0;
  std::vector<GgmlPair> ggml;  // [pairs]
  double ggml_scale = 1;       // freq_scale
  bool ggml_mixes = false;     // ext_factor is not 0

  Dtype TableType(Dtype model) const { return table.value_or(model); }
  Dtype MathType(Dtype model) const { return math.value_or(model); }
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_PARITY_TABLES_H_
