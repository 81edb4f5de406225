// SPDX-License-Identifier: Apache-2.0
// Fixed-point positions, frequencies and phases. Every result rests on this arithmetic.
//
// A phase is the fraction of a turn times 2^64, so integer overflow is reduction modulo one turn. A
// frequency is turns per unit position, and a position is a real number. Both are Q64.64:
// value = whole + fraction * 2^-64, so -0.25 is {-1, 0.75 * 2^64}. See docs/numerics.md.
#ifndef PHASOR_KERNELS_MATH_PHASE_H_
#define PHASOR_KERNELS_MATH_PHASE_H_

#include <cstdint>

#include "kernels/base/host_device.h"

namespace phasor {

// A frequency in turns per unit position.
struct Frequency {
  int64_t whole = 0;
  uint64_t fraction = 0;
  friend bool operator==(const Frequency&, const Frequency&) = default;
};

// The position of a token on one axis.
struct Position {
  int64_t whole = 0;
  uint64_t fraction = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

// The most axes of a position: time, height, width and one more.
inline constexpr int kMaxAxes = 4;

// The upper half of the 128-bit product.
PHASOR_HD uint64_t MulHigh(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// The phase of position `p` at frequency `f`, modulo one turn. Exact for integer positions; for
// others at most one unit of 2^-64 turns too low.
PHASOR_HD uint64_t PhaseOf(Position p, Frequency f) {
  return static_cast<uint64_t>(p.whole) * f.fraction + p.fraction * static_cast<uint64_t>(f.whole) +
         MulHigh(p.fraction, f.fraction);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_PHASE_H_
