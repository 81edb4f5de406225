// SPDX-License-Identifier: Apache-2.0
// Division in f32, rounded once. A GPU's own f32 division calls a function for operands at the ends
// of the range, and kernels call none. So kernels divide in f32 where no step leaves the range, and
// else in f64. Both begin with an approximate reciprocal. Threads: pure functions.
#ifndef PHASOR_KERNELS_MATH_QUOTIENT_H_
#define PHASOR_KERNELS_MATH_QUOTIENT_H_

#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/math/convert.h"

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

// Whether the magnitude of x is in [2^-60, 2^60).
PHASOR_HD bool IsInMiddle(float x) {
  const uint32_t magnitude = BitsFromFloat(x) & 0x7FFFFFFFu;
  return magnitude - (67u << 23) < (120u << 23);
}

// Whether MiddleQuotientFrom divides by b. The reciprocal of a b whose mantissa is all ones is so
// near to a tie that a step of Newton's may not find it.
PHASOR_HD bool IsMiddleDivisor(float b) {
  return IsInMiddle(b) && (BitsFromFloat(b) & 0x7FFFFFu) != 0x7FFFFFu;
}

// rn32(a / b) for a in the middle and such a b, from `seed`, which is 1 / b with an error of at
// most 1 ulp. One step of Newton's gives the nearest reciprocal, and two corrections the quotient:
// rests are exact, because nothing underflows (Markstein, Computation of elementary functions on
// the IBM RISC System/6000, 1990).
PHASOR_HD float MiddleQuotientFrom(float seed, float a, float b) {
  const float reciprocal = std::fma(seed, std::fma(-b, seed, 1.0f), seed);
  float quotient = a * reciprocal;
  PHASOR_UNROLL
  for (int i = 0; i < 2; ++i) {
    quotient = std::fma(std::fma(-b, quotient, a), reciprocal, quotient);
  }
  return quotient;
}

// rn32(a / b). b must be neither 0 nor NaN.
PHASOR_HD float QuotientOf(float a, float b) {
#ifdef __CUDA_ARCH__
  if (IsInMiddle(a) && IsMiddleDivisor(b)) {
    float middle_seed;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(middle_seed) : "f"(b));
    return MiddleQuotientFrom(middle_seed, a, b);
  }
  double seed;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(seed) : "d"(static_cast<double>(b)));
  return QuotientFrom(seed, a, b);
#else
  return a / b;
#endif
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_QUOTIENT_H_
