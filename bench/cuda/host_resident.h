// SPDX-License-Identifier: Apache-2.0
// Tensors in the host's memory: the CUDA backend as a server runs it, beside the link alone.
#ifndef PHASOR_BENCH_CUDA_HOST_RESIDENT_H_
#define PHASOR_BENCH_CUDA_HOST_RESIDENT_H_

#include "bench/cuda/device.h"
#include "bench/harness.h"

namespace phasor::bench {

// A 256 MiB rotation beside pinned copies of as many bytes both ways at once, and 256 requests of
// one token in one run beside a run each. Dies on a wrong byte.
void BenchHostResident(Device& device, Report& report, const Arguments& arguments);

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_CUDA_HOST_RESIDENT_H_
