// SPDX-License-Identifier: Apache-2.0
// Starts kernels on the device. Plain types only: nvcc compiles what is behind it.
#ifndef PHASOR_KERNELS_CUDA_LAUNCH_H_
#define PHASOR_KERNELS_CUDA_LAUNCH_H_

#include "kernels/cuda/grid.h"
#include "kernels/cuda/kernel_id.h"

namespace phasor::cuda {

// Whether this build has machine code, or code that can be translated, for a device. Selects it and
// makes its context. Returns a cudaError_t.
int CanLaunch(int device);

// Queues one launch for all items on `stream`, a cudaStream_t of the current device; a batch
// without blocks queues none. batch.blocks < 2^31. Returns a cudaError_t.
int LaunchKernel(const KernelId& id, const Batch& batch, void* stream);

// The kernel as nodes of graphs name it.
const void* KernelFunction(const KernelId& id);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_LAUNCH_H_
