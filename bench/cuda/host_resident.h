// SPDX-License-Identifier: Apache-2.0
// Benchmarks tensors in host memory: the CUDA backend as a server runs it, compared with the link.
#ifndef PHASOR_BENCH_CUDA_HOST_RESIDENT_H_
#define PHASOR_BENCH_CUDA_HOST_RESIDENT_H_

#include "bench/cuda/device.h"
#include "bench/harness.h"

namespace phasor::bench {

// Compares a 256 MiB rotation with pinned copies of as many bytes in both directions at once, and
// 256 requests of one token in one run with one run each. Dies on a wrong byte.
void BenchHostResident(Device& device, Report& report, const Arguments& arguments);

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_CUDA_HOST_RESIDENT_H_
