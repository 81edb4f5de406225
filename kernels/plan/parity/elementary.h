// SPDX-License-Identifier: Apache-2.0
// Elementary functions in multiprecision arithmetic, rounded once: what upstream's pow, exp and log
// return within their own error, and the same on every machine. For compiling plans, not for loops.
// Threads: pure functions. Arguments are finite; results beyond the type are infinity or zero.
#ifndef PHASOR_KERNELS_PLAN_PARITY_ELEMENTARY_H_
#define PHASOR_KERNELS_PLAN_PARITY_ELEMENTARY_H_

#include "kernels/base/dtype.h"

namespace phasor::parity {

// `type` is what the result is rounded to: FLOAT32 or FLOAT64.
double Pow(Dtype type, double base, double exponent);  // base > 0
double Exp(Dtype type, double x);
double Log(Dtype type, double x);  // x > 0

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_ELEMENTARY_H_
