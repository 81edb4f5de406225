// SPDX-License-Identifier: Apache-2.0
// The parity tables of a plan. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_COMPILE_H_
#define PHASOR_KERNELS_PLAN_PARITY_COMPILE_H_

#include "kernels/plan/parity/tables.h"
#include "kernels/plan/plan.h"

namespace phasor::parity {

// `plan` is complete but for these; its spec asks for PARITY. Frequencies of families that no
// recipe of ParityFrequency makes are the plan's exact ones, rounded once.
ParityTables Compile(const Plan& plan);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_COMPILE_H_
