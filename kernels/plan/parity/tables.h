// SPDX-License-Identifier: Apache-2.0
// The tables that a plan has in addition to its exact ones when its spec asks for an upstream's
// arithmetic. Threads: immutable once made; share freely.
#ifndef PHASOR_KERNELS_PLAN_PARITY_TABLES_H_
#define PHASOR_KERNELS_PLAN_PARITY_TABLES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/math/phase.h"
#include "kernels/math/sincos.h"

namespace phasor {

// One step of ggml's recurrence: theta is the position at a `restart`, then is multiplied by `step`
// after every pair.
struct GgmlPair {
  bool restart = false;
  double step = 1;    // theta_scale
  double factor = 1;  // freq_factors
  double mix = 0;     // share of the unscaled angle
};

// Every number is a value of the type that it is rounded to. Pairs are those of the plan.
struct ParityTables {
  Dtype position = Dtype::kFloat32;  // positions are rounded to it
  Dtype angle = Dtype::kFloat32;     // type of products, sums, sines, cosines and the amplitude
  std::optional<Dtype> table;        // type of the finished sines and cosines; nullopt: the model's
  std::optional<Dtype> math;         // type of the rotation; nullopt: the model's
  std::vector<double> frequency;     // [layers, pairs]; empty: ggml
  std::vector<double> scale;         // [layers, pairs]: multiplies the angle; empty: ones
  std::vector<double> phase;         // [pairs]: added to the angle; empty: zeros
  std::vector<uint8_t> cosine;  // [pairs]: 1: a cosine takes the place of the sine; empty: zeros
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
