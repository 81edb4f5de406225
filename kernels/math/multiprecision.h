// SPDX-License-Identifier: Apache-2.0
// The multiprecision numbers of frequencies, safe to use from several threads.
#ifndef PHASOR_KERNELS_MATH_MULTIPRECISION_H_
#define PHASOR_KERNELS_MATH_MULTIPRECISION_H_

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <limits>

namespace phasor {

// A binary floating-point number with a significand of `bits` bits.
template <unsigned bits>
using RealOf = boost::multiprecision::number<
    boost::multiprecision::cpp_bin_float<bits, boost::multiprecision::digit_base_2>,
    boost::multiprecision::et_off>;

// Boost's log takes epsilon from this type's limits, which are made at their first use and without
// a lock: a second thread could read a half-made one and get a wrong logarithm. A namespace-scope
// `const BoostLimits<bits> kLimits;` in the file that computes makes them before main.
template <unsigned bits>
struct BoostLimits {
  BoostLimits() {
    using Limits =
        std::numeric_limits<boost::multiprecision::number<typename RealOf<bits>::backend_type,
                                                          boost::multiprecision::et_on>>;
    Limits::epsilon();
    Limits::infinity();
    Limits::quiet_NaN();
  }
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_MULTIPRECISION_H_
