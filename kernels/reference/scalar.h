// SPDX-License-Identifier: Apache-2.0
// Scalar code that the reference ops share: phases and exponents of a pair. kernels/math/element.h
// has the elements.
#ifndef PHASOR_KERNELS_REFERENCE_SCALAR_H_
#define PHASOR_KERNELS_REFERENCE_SCALAR_H_

#include <cstdint>

#include "kernels/math/element.h"
#include "kernels/math/phase.h"
#include "kernels/plan/plan.h"

namespace phasor::reference {

// The phase of pair j for a token at p[axes].
inline uint64_t PairPhase(const PhaseTable& table, int64_t j, const Position* p) {
  const int64_t e = table.Entry(j);
  uint64_t phase = table.offset.empty() ? 0 : table.offset[e];
  for (const AxisRun& run : table.runs) {
    if (e < run.begin || e >= run.begin + run.count) continue;
    const int64_t i = run.layer * table.entries() + e;
    phase += PhaseOf(p[run.axis], {static_cast<int64_t>(table.whole[i]), table.fraction[i]});
  }
  return phase;
}

// log2 of the xPos amplitude of pair j for a token at p[axes], times 2^64.
inline Exponent PairExponent(const Xpos* xpos, int64_t j, const Position* p) {
  if (xpos == nullptr) return 0;
  return XposExponent(p[0], xpos->center, xpos->rate[j], xpos->inverse);
}

using scalar::BF16;
using scalar::F16;
using scalar::F32;
using scalar::F64;
using scalar::ScaledTrig;
using scalar::VisitElement;

}  // namespace phasor::reference

#endif  // PHASOR_KERNELS_REFERENCE_SCALAR_H_
