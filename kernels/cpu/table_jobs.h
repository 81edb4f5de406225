// SPDX-License-Identifier: Apache-2.0
// Jobs over learned tables and attention biases, cut into tiles. The reference is the only kernel:
// gathering is bound by memory, and what is left vectorises as it stands.
#ifndef PHASOR_KERNELS_CPU_TABLE_JOBS_H_
#define PHASOR_KERNELS_CPU_TABLE_JOBS_H_

#include <cstdint>

#include "kernels/backend/batch.h"

namespace phasor::cpu {

// Rows [first, first + count) of a lookup. Threads: pure functions of jobs that share no output.
void RunLookup(const LookupJob& job, int64_t first, int64_t count);

// Queries of a bias, 0 when there are no keys.
int64_t BiasRows(const BiasJob& job);
// Bytes of one query in one head.
int64_t BiasRowBytes(const BiasJob& job);
// Queries [first, first + count) of all heads.
void RunBias(const BiasJob& job, int64_t first, int64_t count);

}  // namespace phasor::cpu

#endif  // PHASOR_KERNELS_CPU_TABLE_JOBS_H_
