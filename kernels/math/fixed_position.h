// SPDX-License-Identifier: Apache-2.0
// Arithmetic on Q64.64 positions, computed as signed 128-bit integers. Threads: pure functions.
#ifndef PHASOR_KERNELS_MATH_FIXED_POSITION_H_
#define PHASOR_KERNELS_MATH_FIXED_POSITION_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/base/host_device.h"
#include "kernels/math/phase.h"

namespace phasor {

using Int128 = __int128;
using Uint128 = unsigned __int128;

PHASOR_HD Int128 ToFixed(Position p) {
  return static_cast<Int128>((static_cast<Uint128>(static_cast<uint64_t>(p.whole)) << 64) |
                             p.fraction);
}

PHASOR_HD Position ToPosition(Int128 fixed) {
  const auto bits = static_cast<Uint128>(fixed);
  return {static_cast<int64_t>(static_cast<uint64_t>(bits >> 64)), static_cast<uint64_t>(bits)};
}

// start + i * step. The result must be representable; MakePositionSource checks that.
PHASOR_HD Position PositionAlong(Position start, Position step, int64_t i) {
  if (start.fraction == 0 && step.fraction == 0) {  // may wrap on the way; the result fits
    return {static_cast<int64_t>(static_cast<uint64_t>(start.whole) +
                                 static_cast<uint64_t>(step.whole) * static_cast<uint64_t>(i)),
            0};
  }
  return ToPosition(
      static_cast<Int128>(static_cast<Uint128>(ToFixed(start)) +
                          static_cast<Uint128>(ToFixed(step)) * static_cast<Uint128>(i)));
}

// Converts x to Q64.64: exact for |x| >= 2^-12, else rounded to nearest even at 2^-64. Returns
// false for NaN, infinity and |x| >= 2^63.
PHASOR_HD bool PositionFromDouble(double x, Position* out) {
  if (!(std::abs(x) < 0x1p63)) return false;
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const int biased = static_cast<int>(bits >> 52) & 0x7FF;
  const uint64_t stored = bits & ((uint64_t{1} << 52) - 1);
  const Uint128 mantissa = biased == 0 ? stored : stored | (uint64_t{1} << 52);
  const int shift = (biased == 0 ? 1 : biased) - 1075 + 64;  // |x| * 2^64 = mantissa * 2^shift
  Uint128 magnitude = 0;
  if (shift >= 0) {
    magnitude = mantissa << shift;
  } else if (shift >= -54) {
    const Uint128 half = Uint128{1} << (-shift - 1);
    const Uint128 rest = mantissa & (2 * half - 1);
    magnitude = mantissa >> -shift;
    if (rest > half || (rest == half && (magnitude & 1))) ++magnitude;
  }
  *out = ToPosition(static_cast<Int128>(bits >> 63 ? -magnitude : magnitude));
  return true;
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_FIXED_POSITION_H_
