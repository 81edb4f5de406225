// SPDX-License-Identifier: Apache-2.0
// Computes pow, exp and log with 160 bits and rounds once. That is 100 bits more than a double has,
// so a result close to the middle of two numbers is still on its right side.
#include "kernels/plan/parity/elementary.h"

#include "kernels/math/multiprecision.h"

namespace phasor::parity {
namespace {

constexpr unsigned kBits = 160;
using Real = RealOf<kBits>;

const BoostLimits<kBits> kLimits;

double RoundOnce(Dtype type, const Real& x) {
  return type == Dtype::kFloat32 ? x.convert_to<float>() : x.convert_to<double>();
}

}  // namespace

double Pow(Dtype type, double base, double exponent) {
  return RoundOnce(type, exp(log(Real(base)) * Real(exponent)));
}

double Exp(Dtype type, double x) { return RoundOnce(type, exp(Real(x))); }

double Log(Dtype type, double x) { return RoundOnce(type, log(Real(x))); }

}  // namespace phasor::parity
