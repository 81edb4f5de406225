// SPDX-License-Identifier: Apache-2.0
// Computes ladders of frequencies in 256-bit arithmetic (most need one logarithm, one power and
// repeated products) and rounds each frequency once.
#include "kernels/plan/frequencies.h"

#include <algorithm>
#include <boost/math/constants/constants.hpp>

#include "kernels/plan/frequencies_real.h"
#include "kernels/spec/ladders.h"

namespace phasor {
namespace frequencies {

const BoostLimits<kBits> kLimits;

const Real& TwoPi() {
  static const Real value = boost::math::constants::two_pi<Real>();
  return value;
}

std::vector<Real> PowerLadder(const Real& first, const Real& log_ratio, int64_t terms) {
  constexpr int64_t kFar = 8192;
  std::vector<Real> ladder(terms);
  if (terms == 0 || first == 0) return ladder;
  ladder[0] = first;
  const Real log2_ratio = log_ratio / log(Real(2));
  if (terms == 1 || log2_ratio < -kFar) return ladder;
  if (log2_ratio > kFar) {
    std::fill(ladder.begin() + 1, ladder.end(), ldexp(Real(1), kFar));
    return ladder;
  }
  const Real ratio = exp(log_ratio);
  for (int64_t j = 1; j < terms; ++j) {
    ladder[j] = ladder[j - 1] * ratio;
    if (ladder[j].backend().exponent() < -kFar) break;
    if (ladder[j].backend().exponent() <= kFar) continue;
    std::fill(ladder.begin() + j, ladder.end(), ladder[j]);
    break;
  }
  return ladder;
}

}  // namespace frequencies

namespace {

using frequencies::kBits;
using frequencies::Real;
using frequencies::TwoPi;
using Uint128 = unsigned __int128;

// Rounding errors of a ladder stay below 2^30 units of the 256-bit mantissa. So a fraction of a
// unit of 2^-64 is known to 2^-96, even next to 2^63 turns. A fraction closer to a half than that
// counts as a half.
constexpr Uint128 kTieTolerance = Uint128{1} << 32;  // in units of 2^-128
constexpr Uint128 kHalf = Uint128{1} << 127;

// |x| * 2^64, rounded to nearest, ties to even. Returns false if the result is 2^127 or more.
bool RoundMagnitude(const Real& x, Uint128* out) {
  *out = 0;
  if (x.backend().exponent() == Real::backend_type::exponent_zero) return true;
  const int64_t exponent = x.backend().exponent();  // |x| is in [2^exponent, 2^(exponent + 1))
  if (exponent >= 63) return false;
  const int64_t shift = kBits - 1 - 64 - exponent;  // |x| * 2^64 = mantissa * 2^-shift; >= 129
  if (shift > kBits) return true;                   // less than a half
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
  static_assert(sizeof(boost::multiprecision::limb_type) == 8);
  Uint128 value = 0;
  if (!RoundMagnitude(turns, &value)) return false;
  if (turns.sign() < 0) value = -value;
  *out = {static_cast<int64_t>(static_cast<uint64_t>(value >> 64)), static_cast<uint64_t>(value)};
  return true;
}

Real TurnsPerUnit(const ResolvedSpec& spec) {
  return spec.frequency_unit == FrequencyUnit::kTurns ? Real(1) : Real(1 / TwoPi());
}

// first * (last / first)^(j / denominator); only `first` if there is one term.
std::vector<Real> RangeLadder(const Real& first, const Real& last, const Real& denominator,
                              int64_t terms) {
  const Real log_ratio = terms > 1 ? Real(log(last / first) / denominator) : Real(0);
  return frequencies::PowerLadder(first, log_ratio, terms);
}

std::vector<Real> LinearLadder(const Real& first, const Real& last, int64_t terms) {
  std::vector<Real> ladder(terms, first);
  for (int64_t j = 1; j < terms; ++j) ladder[j] += (last - first) * j / (terms - 1);
  return ladder;
}

// The family's formula, in turns.
std::vector<Real> FamilyTurns(const ResolvedSpec& spec, const Ladder& ladder) {
  const Real unit = TurnsPerUnit(spec);
  const Real denominator = Real(ladder.n) - Real(spec.downscale_freq_shift);
  const int64_t terms = ladder.terms;
  switch (spec.family) {
    case FrequencyFamily::kGeometric:
    case FrequencyFamily::kPerElement: {
      const Real log_ratio =
          terms > 1 ? Real(-log(frequencies::BaseOf(spec, ladder.axis)) / denominator) : Real(0);
      return frequencies::PowerLadder(unit, log_ratio, terms);
    }
    case FrequencyFamily::kPeriods:
      return RangeLadder(1 / Real(spec.min_period), 1 / Real(spec.max_period), terms - 1, terms);
    case FrequencyFamily::kPeriodsExclusive:
      return RangeLadder(1 / Real(spec.min_period), 1 / Real(spec.max_period), terms, terms);
    case FrequencyFamily::kLinear:
      return LinearLadder(unit * Real(spec.min_freq), unit * Real(spec.max_freq), terms);
    case FrequencyFamily::kLogRange:
      return RangeLadder(unit * Real(spec.min_freq), unit * Real(spec.max_freq), denominator,
                         terms);
    case FrequencyFamily::kExplicit:
      break;  // see ListedTurns
  }
  return {};
}

// Reorders inv_freq from [heads, layers, pairs] to [layers, heads, pairs].
std::vector<Real> ListedTurns(const ResolvedSpec& spec) {
  const int64_t heads = spec.frequency_heads;
  const int64_t pairs = PairsOf(spec);
  const int64_t layers = static_cast<int64_t>(spec.inv_freq.size()) / (heads * pairs);
  const Real unit = TurnsPerUnit(spec);
  std::vector<Real> turns;
  turns.reserve(spec.inv_freq.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t i = 0; i < heads * pairs; ++i) {
      const int64_t head = i / pairs;
      turns.push_back(unit * Real(spec.inv_freq[(head * layers + layer) * pairs + i % pairs]));
    }
  }
  return turns;
}

std::vector<Real> LadderTurns(const ResolvedSpec& spec) {
  const std::vector<Ladder> ladders = LaddersOf(spec);
  std::vector<std::vector<Real>> made;
  for (size_t i = 0; i < ladders.size(); ++i) {
    const bool same = i > 0 && spec.axes_theta.empty() && ladders[i].n == ladders[i - 1].n;
    made.push_back(same ? made.back() : FamilyTurns(spec, ladders[i]));
  }
  return JoinLadders(spec, made);
}

}  // namespace

std::optional<std::vector<Frequency>> FrequenciesOf(const ResolvedSpec& spec) {
  std::vector<Real> turns =
      spec.family == FrequencyFamily::kExplicit ? ListedTurns(spec) : LadderTurns(spec);
  frequencies::ScaleFrequencies(spec, turns);
  std::vector<Real> scale(spec.axes, spec.position_scale);
  for (size_t axis = 0; axis < spec.axes_position_scale.size(); ++axis) {
    scale[axis] *= Real(spec.axes_position_scale[axis]);
  }
  const std::vector<uint8_t> axes = AxesOf(spec);
  const int64_t pairs = PairsOf(spec);
  std::vector<Frequency> frequencies(turns.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    const bool turns_at_all =
        !spec.live_pairs || static_cast<int64_t>(i) % pairs < *spec.live_pairs;
    if (turns_at_all && !ToFrequency(turns[i] * scale[axes[i]], &frequencies[i]))
      return std::nullopt;
  }
  return frequencies;
}

std::optional<std::vector<uint64_t>> PhasesOf(const ResolvedSpec& spec) {
  std::vector<uint64_t> phases;
  for (const double phase : spec.phase) {
    Frequency turns;
    if (!ToFrequency(Real(phase) * TurnsPerUnit(spec), &turns)) return std::nullopt;
    phases.push_back(turns.fraction);
  }
  return phases;
}

double AmplitudeOf(const ResolvedSpec& spec) {
  return Real(Real(spec.attention_factor) * frequencies::ScalingAmplitude(spec))
      .convert_to<double>();
}

std::vector<uint64_t> XposRates(int64_t count, double scale_base) {
  const Real octave = log(Real(2)) * Real(scale_base);
  std::vector<uint64_t> rates(count);
  for (int64_t j = 0; j < count; ++j) {
    // zeta_j as a quotient of integers, because 0.4 and 1.4 are not doubles.
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
