// SPDX-License-Identifier: Apache-2.0
// Compiles the parity tables of a plan. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PARITY_COMPILE_H_
#define PHASOR_KERNELS_PLAN_PARITY_COMPILE_H_

#include "kernels/plan/parity/tables.h"
#include "kernels/plan/plan.h"

namespace phasor::parity {

// `plan` must be complete except for these tables, and its spec must ask for PARITY. Families that
// no recipe of ParityFrequency covers get the plan's exact frequencies, rounded once.
ParityTables Compile(const Plan& plan);

}  // namespace phasor::parity

#endif  // PHASOR_KERNELS_PLAN_PARITY_COMPILE_H_
