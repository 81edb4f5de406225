// SPDX-License-Identifier: Apache-2.0
// Angles, sines and cosines of one token in an upstream's arithmetic. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_ANGLES_H_
#define PHASOR_KERNELS_PLAN_PARITY_ANGLES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/math/phase.h"
#include "kernels/math/sincos.h"
#include "kernels/plan/parity/tables.h"

namespace phasor::parity {

// Computes angle[j] in radians for a token at p. `axis` is the plan's, [layers, pairs]; `angles`
// has one entry per pair.
//
//   a = rn(x * w), x = rn(p[axis]); then rn(a * scale); layers are added in order; then the phase.
void TokenAngles(const ParityTables& tables, absl::Span<const uint8_t> axis, const Position* p,
                 absl::Span<double> angles);

// Sines and cosines of angles[j], times `amplitude`, still in the type of the angle.
void TokenSinCos(const ParityTables& tables, absl::Span<const double> angles, double amplitude,
                 SinCos<double>* sin_cos);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_ANGLES_H_
