// SPDX-License-Identifier: Apache-2.0
// The Walsh-Hadamard transform, by butterflies, times 1/sqrt(n). It is its own inverse but for
// rounding. Threads: pure functions.
#ifndef PHASOR_KERNELS_MATH_HADAMARD_H_
#define PHASOR_KERNELS_MATH_HADAMARD_H_

#include <cmath>
#include <cstdint>

namespace phasor {

inline float HadamardFactor(int64_t n) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
}

// The butterflies of one distance on n values: a, b = a + b, a - b.
inline void Butterflies(int64_t n, int64_t distance, float* x) {
  for (int64_t i = 0; i < n; ++i) {
    if (i & distance) continue;
    const float a = x[i], b = x[i + distance];
    x[i] = a + b;
    x[i + distance] = a - b;
  }
}

// Transforms n values, a power of two, in place. The order of operations is part of the contract.
inline void Hadamard(int64_t n, float* x) {
  for (int64_t distance = 1; distance < n; distance *= 2) Butterflies(n, distance, x);
  const float factor = HadamardFactor(n);
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_HADAMARD_H_
