// SPDX-License-Identifier: Apache-2.0
// Wraps the bodies in the headers into kernels and launches them.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace phasor::cuda {
namespace {

// Ask for one block per multiprocessor: if asked for more, the compiler spills registers.
template <typename Body>
__global__ void __launch_bounds__(kThreads, 1) Kernel(Batch batch) {
  RunThread<Body>(batch, blockIdx.x, static_cast<int>(threadIdx.x));
}

}  // namespace

int CanLaunch(int device) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return error;
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, Kernel<LookupBody<scalar::F32>>);
}

int LaunchKernel(const KernelId& id, const Batch& batch, void* stream) {
  if (batch.blocks == 0) return cudaSuccess;
  VisitBody(id, [&]<typename Body>(Body) {
    Kernel<Body>
        <<<static_cast<unsigned>(batch.blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            batch);
  });
  return cudaGetLastError();
}

const void* KernelFunction(const KernelId& id) {
  const void* function = nullptr;
  VisitBody(id,
            [&]<typename Body>(Body) { function = reinterpret_cast<const void*>(&Kernel<Body>); });
  return function;
}

}  // namespace phasor::cuda
