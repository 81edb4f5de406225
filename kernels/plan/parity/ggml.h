// SPDX-License-Identifier: Apache-2.0
// The numbers that ggml's rope starts from: those of ggml_rope_cache_init, rope_yarn and
// ggml_rope_yarn_corr_dims, and the frequency factors that llama.cpp's converter writes.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_GGML_H_
#define PHASOR_KERNELS_PLAN_PARITY_GGML_H_

#include <vector>

#include "kernels/plan/parity/ladder.h"
#include "kernels/plan/parity/tables.h"

namespace phasor::parity {

// What ggml computes before the first token.
struct GgmlLadder {
  std::vector<GgmlPair> pairs;  // the first one restarts
  double scale = 1;             // freq_scale
  bool mixes = false;           // ext_factor is not 0
};

// `ladder` as for Frequencies (ladder.h); `steps` and `live` are ignored.
GgmlLadder GgmlPairs(const GeometricLadder& ladder);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_GGML_H_
