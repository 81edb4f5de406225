// SPDX-License-Identifier: Apache-2.0
// Arithmetic in an upstream's types, carried out in double. If a type holds both operands, one
// operation followed by Round is that type's own operation: a double has more than twice the digits
// of an f32, so rounding twice equals rounding once; 16-bit types compute in f32, as upstreams do.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_ROUNDING_H_
#define PHASOR_KERNELS_PLAN_PARITY_ROUNDING_H_

#include "kernels/base/dtype.h"
#include "kernels/math/convert.h"

namespace phasor::parity {

// The number nearest to x, ties to even, that a compute dtype holds.
inline double Round(Dtype type, double x) {
  switch (type) {
    case Dtype::kFloat32:
      return static_cast<float>(x);
    case Dtype::kFloat16:
      return FloatFromFloat16(Float16FromFloat(static_cast<float>(x)));
    case Dtype::kBFloat16:
      return FloatFromBFloat16(BFloat16FromFloat(static_cast<float>(x)));
    case Dtype::kFloat64:
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
    case Dtype::kInt32:
    case Dtype::kInt64:
      return x;
  }
  return x;
}

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_ROUNDING_H_
