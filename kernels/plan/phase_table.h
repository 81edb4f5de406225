// SPDX-License-Identifier: Apache-2.0
// Makes the table of frequencies that kernels read. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PHASE_TABLE_H_
#define PHASOR_KERNELS_PLAN_PHASE_TABLE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/math/phase.h"
#include "kernels/ops/phase_table.h"

namespace phasor {

// Rearranges `frequency` and `axis`, [layers, pairs], and `offset`, [pairs].
PhaseTable MakePhaseTable(absl::Span<const Frequency> frequency, absl::Span<const uint8_t> axis,
                          absl::Span<const uint64_t> offset);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_PHASE_TABLE_H_
