// SPDX-License-Identifier: Apache-2.0
// How many cores this process may use.
#ifndef PHASOR_KERNELS_BASE_CORES_H_
#define PHASOR_KERNELS_BASE_CORES_H_

#include <limits>
#include <string>

namespace phasor {

// The number of cores that the calling thread is bound to (taskset, cpusets), or the CPU limit of
// its control group (version 2) if that is less; a limit of 1.5 cores counts as 2. At least 1.
// Threads: any.
int UsableCores();

inline constexpr int kNoCoreLimit = std::numeric_limits<int>::max();

// The limit in the text of a cpu.max file, "<quota> <period>" in microseconds, rounded up.
// kNoCoreLimit: the quota is "max", or the text is none of that.
int CoresOfQuota(const std::string& cpu_max);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_CORES_H_
