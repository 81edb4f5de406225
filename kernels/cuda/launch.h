// SPDX-License-Identifier: Apache-2.0
// Starts kernels on the device. Has plain types only, because nvcc compiles launch.cu.
#ifndef PHASOR_KERNELS_CUDA_LAUNCH_H_
#define PHASOR_KERNELS_CUDA_LAUNCH_H_

#include "kernels/cuda/grid.h"
#include "kernels/cuda/kernel_id.h"

namespace phasor::cuda {

// Whether this build has machine code for a device, or code that can be translated for it. Selects
// the device and makes its context. Returns a cudaError_t.
int CanLaunch(int device);

// Arenas of up to this size travel with the launch. Larger ones must be on the device at
// batch.arena.
inline constexpr int64_t kInlineBytes = 2880;

// Queues one launch for all items on `stream`, a cudaStream_t of the current device. A batch
// without blocks queues nothing. Needs batch.blocks < 2^31. Returns a cudaError_t.
int LaunchKernel(const KernelId& id, const Batch& batch, void* stream);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_LAUNCH_H_
