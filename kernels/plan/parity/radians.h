// SPDX-License-Identifier: Apache-2.0
// Sine and cosine of angles in radians, which upstreams form as rounded products of position and
// frequency. No libm: the angle times 1 / (2 pi), modulo one turn, is a phase, and phases have the
// same sine and cosine everywhere (kernels/math/sincos.h).
//
// Source   Payne and Hanek, Radian Reduction for Trigonometric Functions, SIGNUM 1983.
// Error    phase: one unit of 2^-64 turns; sine and cosine: 2^-51 absolute; both for any double.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_RADIANS_H_
#define PHASOR_KERNELS_PLAN_PARITY_RADIANS_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/math/sincos.h"

namespace phasor::parity {

// Two words of zeros, then the bits of 1 / (2 pi) after the point, enough for the largest double.
inline constexpr uint64_t kTurnsPerRadian[] = {0,
                                               0,
                                               0x28BE60DB9391054A,
                                               0x7F09D5F47D4D3770,
                                               0x36D8A5664F10E410,
                                               0x7F9458EAF7AEF158,
                                               0x6DC91B8E909374B8,
                                               0x01924BBA82746487,
                                               0x3F877AC72C4A69CF,
                                               0xBA208D7D4BAED121,
                                               0x3A671C09AD17DF90,
                                               0x4E64758E60D4CE7D,
                                               0x272117E2EF7E4A0E,
                                               0xC7FE25FFF7816603,
                                               0xFBCBC462D6829B47,
                                               0xDB4D9FB3C9F2C26D,
                                               0xD3D18FD9A797FA8B,
                                               0x5D49EEB1FAF97C5E,
                                               0xCF41CE7DE294A4BA,
                                               0x9AFED7EC47E35742,
                                               0x1580CC11BF1EDAEA,
                                               0xFC33EF0826BD0D87};

// 64 bits of the table, from bit `first` on.
inline uint64_t BitsOfTurnsPerRadian(int first) {
  const uint64_t* const word = kTurnsPerRadian + first / 64;
  const int shift = first % 64;
  return shift == 0 ? word[0] : (word[0] << shift) | (word[1] >> (64 - shift));
}

// The phase of `radians`, which must be finite and at least 2^-64 in magnitude. If the angle is
// m * 2^e with m of 53 bits, only 192 bits of 2^e / (2 pi) reach the phase.
inline uint64_t PhaseOfRadians(double radians) {
  int exponent = 0;
  const double significand = std::frexp(std::fabs(radians), &exponent);  // in [1/2, 1)
  const uint64_t m = static_cast<uint64_t>(std::ldexp(significand, 53));
  const int first = exponent - 53 + 128;
  using Uint128 = unsigned __int128;
  const Uint128 low = Uint128{m} * BitsOfTurnsPerRadian(first + 128);
  const Uint128 middle = Uint128{m} * BitsOfTurnsPerRadian(first + 64) + (low >> 64);
  const uint64_t phase = m * BitsOfTurnsPerRadian(first) + static_cast<uint64_t>(middle >> 64);
  return radians < 0 ? -phase : phase;
}

inline SinCos<double> SinCosOfRadians(double radians) {
  const double magnitude = std::fabs(radians);
  if (magnitude < 0x1p-27) return {radians, 1.0};  // the next terms round away
  if (!(magnitude <= std::numeric_limits<double>::max())) return {NAN, NAN};
  return SinCos64(PhaseOfRadians(radians));
}

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_RADIANS_H_
