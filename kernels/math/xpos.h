// SPDX-License-Identifier: Apache-2.0
// xPos amplitudes. The amplitude of pair j at position p is zeta_j^((p - center) / scale_base) with
// 0 < zeta < 1, and its reciprocal for keys. Computed without libm, as 2^e with e in fixed point:
// then exponents add and cancel exactly, and every backend returns the same bits.
// Error: docs/numerics.md. Threads: pure functions.
#ifndef PHASOR_KERNELS_MATH_XPOS_H_
#define PHASOR_KERNELS_MATH_XPOS_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/host_device.h"
#include "kernels/math/phase.h"

namespace phasor {

// The amplitudes of a plan. Threads: a plain value, immutable once made; share it freely.
struct Xpos {
  std::vector<uint64_t> rate;  // [pairs]: the fraction -log2(zeta_j) / scale_base, times 2^64
  Position center;
  bool inverse = false;  // keys: the amplitude grows with the position
};

// log2 of an amplitude, times 2^64. At most 2^126 in magnitude, so differences do not overflow.
using Exponent = __int128;

// log2 of the amplitude at p of a pair with `rate`, times 2^64. Exact for integer p - center; for
// others off by less than one unit of 2^-64. Distances beyond 2^62 count as 2^62.
PHASOR_HD Exponent XposExponent(Position p, Position center, uint64_t rate, bool inverse) {
  const uint64_t fraction = p.fraction - center.fraction;
  Exponent whole = Exponent{p.whole} - center.whole - (p.fraction < center.fraction ? 1 : 0);
  constexpr Exponent kFarthest = Exponent{1} << 62;
  if (whole > kFarthest) whole = kFarthest;
  if (whole < -kFarthest) whole = -kFarthest;
  const Exponent grown = whole * rate + static_cast<Exponent>(MulHigh(fraction, rate));
  return inverse ? grown : -grown;
}

// value * 2^n for value in [0.5, 2] and |n| <= 2000, rounded once, because the first product is
// exact. Unlike ldexp, the same on every machine.
PHASOR_HD double ScaleByPowerOf2(double value, int n) {
  const auto power = [](int k) {  // 2^k, |k| <= 1022
#ifdef __CUDA_ARCH__
    return __longlong_as_double(static_cast<long long>(k + 1023) << 52);
#else
    return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);
#endif
  };
  return value * power(n / 2) * power(n - n / 2);
}

// 2^(e / 2^64) as a double: exactly 1 for e = 0; infinity or 0 where that is the nearest double.
PHASOR_HD double Exp2(Exponent e) {
  // ln(2)^n / n!, rounded.
  constexpr double kC[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58fp-3,  0x1.c6b08d704a0c0p-5,
                           0x1.3b2ab6fba4e77p-7,  0x1.5d87fe78a6731p-10, 0x1.430912f86c787p-13,
                           0x1.ffcbfc588b0c7p-17, 0x1.62c0223a5c824p-20, 0x1.b5253d395e7c4p-24,
                           0x1.e4cf5158b8ecap-28, 0x1.e8cac7351bb25p-32, 0x1.c3bd650fc2986p-36,
                           0x1.816193166d0f9p-40};
  constexpr int kDegree = 13;
  const Exponent shifted = e + (Exponent{1} << 63);
  Exponent whole = shifted >> 64;  // nearest integer
  const auto rest = static_cast<int64_t>(static_cast<uint64_t>(shifted) ^ (uint64_t{1} << 63));
  if (whole > 2000) whole = 2000;
  if (whole < -2000) whole = -2000;
  const double x = static_cast<double>(rest) * 0x1p-64;  // in [-1/2, 1/2]
  double u = kC[kDegree - 1];
  for (int n = kDegree - 2; n >= 0; --n) u = std::fma(x, u, kC[n]);
  return ScaleByPowerOf2(std::fma(x, u, 1.0), static_cast<int>(whole));
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_XPOS_H_
