// SPDX-License-Identifier: Apache-2.0
// Elementary functions in multiprecision arithmetic, rounded once: within the error of upstream's
// pow, exp and log, and the same on every machine. Slow; meant for compiling plans. Arguments must
// be finite; results beyond the type are infinity or zero. Threads: pure functions.
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
