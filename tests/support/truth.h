// SPDX-License-Identifier: Apache-2.0
// True values: angles, sines and cosines in 320-bit arithmetic, and distances from them. All angles
// are in turns, as in the kernels. GeometricTurns and PeriodTurns use the formulas of
// docs/conventions.md and never a Frequency.
#ifndef PHASOR_TESTS_SUPPORT_TRUTH_H_
#define PHASOR_TESTS_SUPPORT_TRUTH_H_

#include <algorithm>
#include <boost/math/constants/constants.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/math/phase.h"

namespace phasor::testing {

using Real = boost::multiprecision::number<
    boost::multiprecision::cpp_bin_float<320, boost::multiprecision::digit_base_2>,
    boost::multiprecision::et_off>;
using Integer = boost::multiprecision::cpp_int;

inline const Real& TwoPi() {
  static const Real value = boost::math::constants::two_pi<Real>();
  return value;
}

// The exact value of fixed-point numbers.
inline Real ToReal(Position p) { return Real(p.whole) + ldexp(Real(p.fraction), -64); }
inline Real ToReal(Frequency f) { return Real(f.whole) + ldexp(Real(f.fraction), -64); }
inline Real PhaseToTurns(uint64_t phase) { return ldexp(Real(phase), -64); }

// position * base^-exponent radians, in turns. RoPE pair j of n: exponent j / n.
inline Real GeometricTurns(const Real& position, double base, const Real& exponent) {
  return position * exp(-exponent * log(Real(base))) / TwoPi();
}

// position / (min * (max / min)^exponent) turns.
inline Real PeriodTurns(const Real& position, double min, double max, const Real& exponent) {
  return position / (Real(min) * exp(exponent * log(Real(max) / Real(min))));
}

// Turns reduced to [-1/2, 1/2].
inline Real WrapTurns(const Real& turns) { return turns - floor(turns + Real(0.5)); }

inline Real TrueSinTurns(const Real& turns) { return sin(WrapTurns(turns) * TwoPi()); }
inline Real TrueCosTurns(const Real& turns) { return cos(WrapTurns(turns) * TwoPi()); }

// The unit in the last place of T at `value`: the gap between neighbours in its binade.
template <typename T, typename R>
R UlpAt(const R& value) {
  using std::frexp;
  using std::ldexp;
  int exponent = 0;
  frexp(value, &exponent);
  const int lowest = std::numeric_limits<T>::min_exponent;
  return ldexp(R(1), std::max(exponent, lowest) - std::numeric_limits<T>::digits);
}

// |got - want| in units in the last place of T at `want`.
template <typename T, typename R>
double UlpError(T got, const R& want) {
  using std::abs;
  return static_cast<double>(abs(R(got) - want) / UlpAt<T>(want));
}

// x in Q64.64, to nearest, ties to even, as one integer.
inline Integer RoundToFixed(const Real& x) {
  const Real scaled = ldexp(x, 64);
  const Real low = floor(scaled);
  const Real rest = scaled - low;
  const Integer n(low);
  const bool up = rest > Real(0.5) || (rest == Real(0.5) && (n & 1) != 0);
  return up ? Integer(n + 1) : n;
}

// A Q64.64 number as one integer.
inline Integer ToFixed(int64_t whole, uint64_t fraction) {
  return (Integer(whole) << 64) + Integer(fraction);
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_TRUTH_H_
