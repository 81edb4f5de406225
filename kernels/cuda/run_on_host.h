// SPDX-License-Identifier: Apache-2.0
// Runs kernel bodies on the host: when a device fails in the middle of a job, and in tests.
#ifndef PHASOR_KERNELS_CUDA_RUN_ON_HOST_H_
#define PHASOR_KERNELS_CUDA_RUN_ON_HOST_H_

#include "kernels/cuda/grid.h"
#include "kernels/cuda/kernel_id.h"

namespace phasor::cuda {

// Runs every thread of every block, one after another. Reads the arena at
// batch.host. Tensors are in host memory.
void RunOnHost(const KernelId& id, const Batch& batch);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_RUN_ON_HOST_H_
