// SPDX-License-Identifier: Apache-2.0
// Runs jobs on learned tables and attention biases in tiles. They use the reference kernel:
// gathering is limited by memory, and compilers vectorise the rest.
#ifndef PHASOR_KERNELS_CPU_TABLE_JOBS_H_
#define PHASOR_KERNELS_CPU_TABLE_JOBS_H_

#include <cstdint>

#include "kernels/backend/batch.h"

namespace phasor::cpu {

// Runs rows [first, first + count) of a lookup.
// Threads: pure functions of jobs that share no output.
void RunLookup(const LookupJob& job, int64_t first, int64_t count);

// The queries of a bias; 0 if there are no keys.
int64_t BiasRows(const BiasJob& job);
// The bytes of one query in one head.
int64_t BiasRowBytes(const BiasJob& job);
// Runs queries [first, first + count) in all heads.
void RunBias(const BiasJob& job, int64_t first, int64_t count);

}  // namespace phasor::cpu

#endif  // PHASOR_KERNELS_CPU_TABLE_JOBS_H_
