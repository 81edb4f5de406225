// SPDX-License-Identifier: Apache-2.0
// Division in f32, rounded once. A GPU's own f32 division calls a function for operands at the ends
// of the range, and kernels call none, so on a GPU it is computed in f64 from an approximate
// reciprocal. Threads: pure functions.
#ifndef PHASOR_KERNELS_MATH_QUOTIENT_H_
#define PHASOR_KERNELS_MATH_QUOTIENT_H_

#include <cmath>

#include "kernels/base/host_device.h"

namespace phasor {

// rn32(a / b) for b that is neither 0 nor NaN, from `seed`, which is 1 / b with a relative error of
// at most 2^-18 (any number if b is infinite). Steps of Newton's give the reciprocal to the last
// bits of f64. The correction at the end gives the quotient of numbers with 24 bits exactly where
// f64 holds it, so that ties are ties, and otherwise with an error that is far smaller than the
// distance to the next tie of f32.
PHASOR_HD float QuotientFrom(double seed, float a, float b) {
  constexpr float kLargest = 0x1.fffffep127f;
  const bool is_finite = std::fabs(a) <= kLargest;
  if (!(std::fabs(b) <= kLargest)) return is_finite ? a * std::copysign(0.0f, b) : a - a;
  const auto divisor = static_cast<double>(b);
  double reciprocal = seed;
  PHASOR_UNROLL
  for (int i = 0; i < 3; ++i) {
    reciprocal = std::fma(reciprocal, std::fma(-divisor, reciprocal, 1.0), reciprocal);
  }
  const double quotient = static_cast<double>(a) * reciprocal;
  if (!is_finite || a == 0) return static_cast<float>(quotient);  // a zero keeps its sign
  const double rest = std::fma(-quotient, divisor, static_cast<double>(a));
  return static_cast<float>(std::fma(rest, reciprocal, quotient));
}

// rn32(a / b). b must be neither 0 nor NaN.
PHASOR_HD float QuotientOf(float a, float b) {
#ifdef __CUDA_ARCH__
  double seed;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(seed) : "d"(static_cast<double>(b)));
  return QuotientFrom(seed, a, b);
#else
  return a / b;
#endif
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_QUOTIENT_H_
