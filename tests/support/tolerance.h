// SPDX-License-Identifier: Apache-2.0
// The error contract of docs/numerics.md, in one place. A test that needs more than this has found
// a bug. To change the contract, first write an ADR with the measured reason.
#ifndef PHASOR_TESTS_SUPPORT_TOLERANCE_H_
#define PHASOR_TESTS_SUPPORT_TOLERANCE_H_

#include <cmath>

namespace phasor::testing {

inline constexpr double kEncode32Ulp = 1.5;
inline const double kEncode32Absolute = std::exp2(-23.9);  // integer positions up to 2^32
inline constexpr double kEncode32Nearest = 0.84;           // share correctly rounded below 2^24
inline constexpr double kEncode64Absolute = 0x1p-51;
inline constexpr double kSumAbsolute = 2 * 0x1p-22;  // largest term: 2
inline constexpr double kRotary32 = 3.5 * 0x1p-24;   // times hypot(x1, x2)
inline constexpr double kRotary64 = 4 * 0x1p-53;

// Radians by which a phase may be off at position x: 2 pi (|x| 2^-65 + (1 + |f|) 2^-64), the second
// term only for positions that are not integers.
inline double PhaseError(double x, double largest_frequency) {
  const double real = x == std::floor(x) ? 0.0 : (1 + largest_frequency) * 0x1p-64;
  return 6.2831853071795865 * (std::abs(x) * 0x1p-65 + real);
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_TOLERANCE_H_
