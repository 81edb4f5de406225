// SPDX-License-Identifier: Apache-2.0
// One logarithm, one power and repeated products in 256-bit arithmetic, then one rounding.
#include "kernels/frequencies.h"

#include <boost/math/constants/constants.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <limits>
#include <utility>

namespace phasor {
namespace {

namespace mp = boost::multiprecision;

constexpr int kBits = 256;
using Real = mp::number<mp::cpp_bin_float<kBits, mp::digit_base_2>, mp::et_off>;
using Uint128 = unsigned __int128;

// Rounding errors of a ladder stay below 2^30 units of the 256-bit mantissa, so a fraction of a
// unit of 2^-64 is known to 2^-96 even next to 2^63 turns. Anything closer to a half than that is
// one.
constexpr Uint128 kTieTolerance = Uint128{1} << 32;  // of 2^128
constexpr Uint128 kHalf = Uint128{1} << 127;

const Real& TwoPi() {
  static const Real value = boost::math::constants::two_pi<Real>();
  return value;
}

// |x| * 2^64 to nearest, ties to even. False when the result is 2^127 or more.
bool RoundMagnitude(const Real& x, Uint128* out) {
  *out = 0;
  if (x.backend().exponent() == Real::backend_type::exponent_zero) return true;
  const int64_t exponent = x.backend().exponent();  // |x| is in [2^exponent, 2^(exponent + 1))
  if (exponent >= 63) return false;
  const int64_t shift = kBits - 1 - 64 - exponent;  // |x| * 2^64 = mantissa * 2^-shift; >= 129
  if (shift > kBits) return true;                   // below a half
  const auto* limbs = x.backend().bits().limbs();
  const Uint128 high = (Uint128{limbs[3]} << 64) | limbs[2];
  const Uint128 low = (Uint128{limbs[1]} << 64) | limbs[0];
  const bool no_whole = shift == kBits;
  const Uint128 whole = no_whole ? 0 : high >> (shift - 128);
  const Uint128 fraction = no_whole ? high : (high << (kBits - shift)) | (low >> (shift - 128));
  const bool tie = fraction >= kHalf - kTieTolerance && fraction <= kHalf + kTieTolerance;
  const bool up = tie ? (whole & 1) != 0 : fraction > kHalf;
  *out = whole + (up ? 1 : 0);
  return *out < kHalf;
}

bool ToFrequency(const Real& turns, Frequency* out) {
  static_assert(sizeof(mp::limb_type) == 8);
  Uint128 value = 0;
  if (!RoundMagnitude(turns, &value)) return false;
  if (turns.sign() < 0) value = -value;
  *out = {static_cast<int64_t>(static_cast<uint64_t>(value >> 64)), static_cast<uint64_t>(value)};
  return true;
}

// first * ratio^j, where log2 of |first| and of ratio are known well enough to keep 256-bit
// exponents from overflowing.
std::optional<std::vector<Frequency>> Ladder(const Real& first, const Real& log_ratio,
                                             double log2_first, double log2_ratio, int64_t count) {
  constexpr double kVanishes = -4096;  // every later term is far below 2^-64
  if (std::max(log2_first, log2_first + log2_ratio * static_cast<double>(count - 1)) > 64) {
    return std::nullopt;
  }
  Real ratio = 0;
  if (count > 1 && log2_ratio > kVanishes) ratio = exp(log_ratio);
  std::vector<Frequency> frequencies(count);
  Real turns = first;
  for (Frequency& frequency : frequencies) {
    if (!ToFrequency(turns, &frequency)) return std::nullopt;
    turns *= ratio;
  }
  return frequencies;
}

}  // namespace

std::optional<std::vector<Frequency>> GeometricFrequencies(double base, double denominator,
                                                           int64_t count, double position_scale) {
  if (count == 0 || position_scale == 0) return std::vector<Frequency>(count);
  const Real log_ratio = count > 1 ? Real(-log(Real(base)) / denominator) : Real(0);
  return Ladder(Real(position_scale) / TwoPi(), log_ratio,
                std::log2(std::abs(position_scale)) - 2.651, -std::log2(base) / denominator, count);
}

std::optional<std::vector<Frequency>> PeriodFrequencies(double min_period, double max_period,
                                                        double denominator, int64_t count,
                                                        double position_scale) {
  if (count == 0 || position_scale == 0) return std::vector<Frequency>(count);
  const Real log_ratio =
      count > 1 ? Real(log(Real(min_period) / Real(max_period)) / denominator) : Real(0);
  return Ladder(Real(position_scale) / Real(min_period), log_ratio,
                std::log2(std::abs(position_scale)) - std::log2(min_period),
                (std::log2(min_period) - std::log2(max_period)) / denominator, count);
}

std::vector<uint64_t> XposRates(int64_t count, double scale_base) {
  const Real octave = log(Real(2)) * Real(scale_base);
  std::vector<uint64_t> rates(count);
  for (int64_t j = 0; j < count; ++j) {
    // zeta_j as a quotient of integers: 0.4 and 1.4 are not doubles.
    Uint128 rate = 0;
    RoundMagnitude(log(Real(7 * count) / Real(5 * j + 2 * count)) / octave, &rate);
    rates[j] = static_cast<uint64_t>(rate);
  }
  return rates;
}

double RadiansPerUnit(Frequency f) {
  const Real turns = Real(f.whole) + ldexp(Real(f.fraction), -64);
  return (turns * TwoPi()).convert_to<double>();
}

}  // namespace phasor
